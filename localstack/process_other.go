//go:build !unix

package localstack

import (
	"errors"
	"fmt"
	"os"
)

// serverProcess is not to be had here: real servers are run on Unix systems alone.
type serverProcess struct {
	name, log string
	exited    chan struct{}
	err       error
}

func (c serverCommand) run() (*serverProcess, error) {
	return nil, fmt.Errorf("%w: %s is run on Unix systems alone", ErrNotInstalled, c.name)
}

func (p *serverProcess) pid() int       { return 0 }
func (p *serverProcess) terminate()     {}
func (p *serverProcess) interrupt()     {}
func (p *serverProcess) kill() error    { return errors.ErrUnsupported }
func (p *serverProcess) pause() error   { return errors.ErrUnsupported }
func (p *serverProcess) unpause() error { return errors.ErrUnsupported }

func pauseProcess(*os.Process) error   { return errors.ErrUnsupported }
func unpauseProcess(*os.Process) error { return errors.ErrUnsupported }
