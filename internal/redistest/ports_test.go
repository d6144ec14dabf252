package redistest

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// A port whose server is down belongs to its test still.
func TestAPortIsThatOfOneTest(t *testing.T) {
	const wanted = "LOCKPROXY_REDISTEST_PORT"
	if port, err := strconv.Atoi(os.Getenv(wanted)); err == nil {
		if _, err := ports.draw(port, port); err != nil {
			t.Fatal(err)
		}
		return
	}
	elsewhere := func(port int) error {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), wanted+"="+strconv.Itoa(port))
		return cmd.Run()
	}
	var port int
	t.Run("inner", func(t *testing.T) {
		port = Port(t)
		if _, err := ports.draw(port, port); !errors.Is(err, errTaken) {
			t.Errorf("in this process: %v", err)
		}
		if err := elsewhere(port); err == nil {
			t.Error("another process gets the port")
		}
	})
	if err := elsewhere(port); err != nil {
		t.Errorf("in another process, after the test: %v", err)
	}
	if _, err := ports.draw(port, port); err != nil {
		t.Errorf("after the test: %v", err)
	}
	ports.giveBack(port)
}
