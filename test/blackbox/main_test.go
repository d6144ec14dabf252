package blackbox

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
