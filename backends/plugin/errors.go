package plugin

/*
#include "backend.h"
static const char *last_error(const struct gic_backend *b) { return b->last_error(); }
*/
import "C"

import (
	"fmt"
	"strings"
	"syscall"

	"gic/backends"

	"golang.org/x/sys/unix"
)

// Error is a negative status of a plugin's function, with the plugin's own text.
type Error struct {
	Backend string
	Call    string // probe, open, window, ...
	Text    string // last_error() of the plugin
	Errno   syscall.Errno
	// Cause is the exchange among the ranks that failed inside the call, if one did.
	Cause error
}

// Error is "minigda: open: CQ depth 3 is not a power of two (EINVAL)". What cannot run here is the plugin's text
// alone: it becomes the reason of a row that names the backend already.
func (e *Error) Error() string {
	if e.Errno == syscall.ENOTSUP {
		return e.Text
	}
	name := unix.ErrnoName(e.Errno)
	if name == "" {
		name = fmt.Sprintf("status %d", -int(e.Errno))
	}
	s := fmt.Sprintf("%s: %s: %s (%s)", e.Backend, e.Call, e.Text, name)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the errno, the sentinel of package backends that it stands for, and the cause.
func (e *Error) Unwrap() []error {
	errs := []error{e.Errno}
	switch e.Errno {
	case syscall.ENOTSUP:
		errs = append(errs, backends.ErrNotSupported)
	case syscall.ETIMEDOUT:
		errs = append(errs, backends.ErrTimeout)
	case syscall.ECANCELED:
		errs = append(errs, backends.ErrCanceled)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// status turns a status into an error. It must run on the thread that made the call.
func (p *Plugin) status(call string, rc C.int, cause error) error {
	if rc == 0 {
		return nil
	}
	e := &Error{Backend: p.info.Name, Call: call, Errno: syscall.Errno(-rc), Cause: cause}
	if rc > 0 {
		e.Errno = syscall.EPROTO
		e.Text = fmt.Sprintf("returned %d, which is no status", int(rc))
		return e
	}
	if text := C.last_error(p.b); text != nil {
		e.Text = strings.TrimSpace(C.GoString(text))
	}
	if e.Text == "" {
		e.Text = e.Errno.Error()
	}
	return e
}
