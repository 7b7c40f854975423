package plugin

// #include <stddef.h>
// #include <stdint.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"syscall"
	"unsafe"

	"gic/backends"
)

// gicGoExchange is both callbacks of gic_comm: an allgather, or with all == NULL a barrier. It runs on the
// session's thread, inside a call into the plugin.
//
//export gicGoExchange
func gicGoExchange(h C.uintptr_t, mine, all unsafe.Pointer, bytes C.size_t) C.int {
	s := cgo.Handle(h).Value().(*session)
	err := s.exchange(mine, all, int(bytes))
	if err == nil {
		return 0
	}
	s.commErr = err
	switch {
	case s.ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, backends.ErrCanceled):
		return -C.int(syscall.ECANCELED)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, backends.ErrTimeout):
		return -C.int(syscall.ETIMEDOUT)
	}
	return -C.int(syscall.EIO)
}

func (s *session) exchange(mine, all unsafe.Pointer, bytes int) error {
	if all == nil {
		if bytes != 0 {
			return fmt.Errorf("allgather of %d bytes into NULL", bytes)
		}
		return s.comm.Barrier(s.ctx)
	}
	buf := make([]byte, bytes)
	copy(buf, unsafe.Slice((*byte)(mine), bytes))
	parts, err := s.comm.Allgather(s.ctx, buf)
	if err != nil {
		return err
	}
	if len(parts) != s.ranks {
		return fmt.Errorf("allgather: %d parts for %d ranks", len(parts), s.ranks)
	}
	for i, part := range parts {
		if len(part) != bytes {
			return fmt.Errorf("allgather: rank %d gave %d bytes, this rank %d", i, len(part), bytes)
		}
		copy(unsafe.Slice((*byte)(unsafe.Add(all, i*bytes)), bytes), part)
	}
	return nil
}
