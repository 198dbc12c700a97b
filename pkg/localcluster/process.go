/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a process has between SIGTERM and SIGKILL.
	stopGrace = 10 * time.Second
	// tailLines is how many lines of a log an error shows.
	tailLines = 15
	// tailBytes bounds how much of a log is read for them.
	tailBytes = 16 * 1024
)

// process is one running component.
type process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	// stopping means that the process is being ended, so its end is expected.
	stopping atomic.Bool
	// ended is closed once the process has ended and state is set.
	ended chan struct{}
	state string
}

// startProcess runs the command. Its output is appended to logFile, and pidFile
// holds its pid while it runs. If it ends without having been stopped, died is called
// from another goroutine.
func startProcess(name string, cmd *exec.Cmd, logFile, pidFile string, died func(*process)) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// The process has its own copy of the descriptor.
	defer log.Close()

	p := &process{name: name, logFile: logFile, cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = processAttributes()
	if err := onStarterThread(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	pidErr := os.WriteFile(pidFile, []byte(strconv.Itoa(p.cmd.Process.Pid)+"\n"), 0o644)

	go func() {
		if err := p.cmd.Wait(); err != nil {
			p.state = err.Error()
		} else {
			p.state = "exit status 0"
		}
		// A pid file that stays behind does no harm: kill reports that the process is gone.
		_ = os.Remove(pidFile)
		close(p.ended)
		if !p.stopping.Load() {
			died(p)
		}
	}()
	if pidErr != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, pidErr), p.stop(context.Background()))
	}
	return p, nil
}

// starter runs functions on one thread that lasts as long as the program. The kernel
// ends a child when the thread that started it ends, rather than the process, and the
// Go runtime may end any other thread.
var starter = sync.OnceValue(func() chan<- func() {
	functions := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range functions {
			f()
		}
	}()
	return functions
})

func onStarterThread(f func() error) error {
	result := make(chan error)
	starter() <- func() { result <- f() }
	return <-result
}

// stop asks the process to end, and kills it if it runs on beyond stopGrace or the end
// of ctx. It returns once the process has ended.
func (p *process) stop(ctx context.Context) error {
	p.stopping.Store(true)
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return p.kill(syscall.SIGKILL)
	}
}

// kill ends the process at once, by a signal, and returns when it has ended.
func (p *process) kill(signal syscall.Signal) error {
	return p.endBy(func() error { return p.signal(signal) })
}

// endBy has a function end the process, and returns when it has ended.
func (p *process) endBy(end func() error) error {
	p.stopping.Store(true)
	if err := end(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig syscall.Signal) error {
	// Not by pid: once the process has ended, its pid may belong to another.
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Exit is the unexpected end of a process.
type Exit struct {
	// Process is the name of the process.
	Process string
	// State says how it ended, such as "exit status 1" or "signal: killed".
	State string
	// LogFile holds its output.
	LogFile string
}

// Error includes the last lines of the log.
func (e *Exit) Error() string {
	return fmt.Sprintf("%s has ended (%s); %s", e.Process, e.State, describeLog(e.LogFile))
}

func (p *process) exit() *Exit {
	return &Exit{Process: p.name, State: p.state, LogFile: p.logFile}
}

// describeLog returns the last lines of a log, below a line that names the file.
func describeLog(file string) string {
	tail, err := tailOf(file, tailLines)
	switch {
	case err != nil:
		return fmt.Sprintf("its log cannot be read: %v", err)
	case tail == "":
		return fmt.Sprintf("its log %s is empty", file)
	default:
		return fmt.Sprintf("the last lines of its log %s:\n    %s", file, strings.ReplaceAll(tail, "\n", "\n    "))
	}
}

// tailOf returns at most that many of the last lines of a file, without the final
// newline.
func tailOf(file string, lines int) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	from := max(0, size-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return "", err
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	if from > 0 && len(all) > 1 {
		// The first line may be incomplete.
		all = all[1:]
	}
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))), nil
}
