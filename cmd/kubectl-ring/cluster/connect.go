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

// Package cluster is what the commands of kubectl ring have in common: they connect to a cluster,
// and read and write the records of its rings.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
)

// Session is what a command works with.
type Session struct {
	// Client is of the cluster that the command's flags name, and Config is how to connect to that.
	Client kubernetes.Interface
	Config *rest.Config
	// Contact knows whether the cluster answers Client.
	Contact *Contact
	// Args are the command's arguments, and Out is what it prints to.
	Args []string
	Out  io.Writer
}

// Command gives a command the flags, and has it connect to the cluster that they name and then run.
// The command's PreRunE can refuse its other options before that.
func Command(flags *genericclioptions.ConfigFlags, command *cobra.Command, run func(ctx context.Context, s *Session) error) *cobra.Command {
	flags.AddFlags(command.Flags())
	command.RunE = func(command *cobra.Command, args []string) error {
		s, err := connect(flags)
		if err != nil {
			return err
		}
		s.Args, s.Out = args, command.OutOrStdout()
		return run(command.Context(), s)
	}
	return command
}

// connect returns a session that has no arguments yet.
func connect(flags genericclioptions.RESTClientGetter) (*Session, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// Warnings would end up in the middle of the table.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	// A ring has many records: what is too much at once the server says.
	config.QPS = -1
	s := &Session{Config: config, Contact: &Contact{}}
	noted := rest.CopyConfig(config)
	noted.Wrap(s.Contact.wrap)
	s.Client, err = kubernetes.NewForConfig(noted)
	return s, err
}

// UntilSignal returns a context that ends on Ctrl-C and SIGTERM, for a command that has something
// to say or to put in order then. Any other command is ended by the signal itself.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// Contact knows whether the last answer of the API server was what was asked for. A watch that is
// lost is asked for again in silence: what has been seen stays as it is, and grows old.
type Contact struct {
	lock sync.Mutex
	// since is when it began to fail, and why, last; zero: it does not.
	since time.Time
	why   error
}

// wrap returns a transport that takes note of what comes of its requests.
func (c *Contact) wrap(transport http.RoundTripper) http.RoundTripper {
	return noting{transport, c}
}

type noting struct {
	http.RoundTripper
	*Contact
}

// RoundTrip notes what has come of the request.
func (n noting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	switch {
	case err != nil:
		n.note(err)
	case response.StatusCode >= http.StatusBadRequest:
		n.note(errors.New("it answers " + response.Status))
	default:
		n.note(nil)
	}
	return response, err
}

func (c *Contact) note(err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	switch {
	case err == nil:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = time.Now()
	}
	c.why = err
}

// Lost says for how long there has been no contact as of now, in a line; "": there is. With a zero
// now it does not say for how long.
func (c *Contact) Lost(now time.Time) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.since.IsZero() {
		return ""
	}
	since := ""
	if !now.IsZero() {
		since = " for " + duration.HumanDuration(max(0, now.Sub(c.since)))
	}
	return fmt.Sprintf("No contact with the API server%s, so what follows is old: %s\n", since, ring.Printable(c.why.Error()))
}
