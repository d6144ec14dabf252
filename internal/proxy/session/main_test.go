package session

import (
	"testing"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ants.Release() // the pool that importing ants starts
	goleak.VerifyTestMain(m)
}
