package redistest

import "runtime"

// superviseLocked starts the process and waits for its end on one thread, see the package doc.
func (p *process) superviseLocked(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.exited)
}
