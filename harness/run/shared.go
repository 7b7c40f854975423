package run

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	jobPrefix  = "gic-"
	lockSuffix = ".lock"
)

// jobNames makes the names of a run's jobs. While the run lives it holds a lock on a file beside its shared
// memory, so that a later run can tell what a killed one has left behind, and remove it.
type jobNames struct {
	prefix string
	lock   *os.File

	mu   sync.Mutex
	next int
}

func newJobNames() (*jobNames, error) {
	if _, err := os.Stat(sharedDir); err != nil {
		return &jobNames{prefix: newPrefix()}, nil // no shared memory, nothing to leave behind
	}
	removeStale()
	var err error
	for range 5 {
		n := &jobNames{prefix: newPrefix()}
		if err = n.mark(); err == nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("mark shared memory of this run: %w", err)
}

func newPrefix() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // does not fail (crypto/rand)
	return fmt.Sprintf("%s%x", jobPrefix, b)
}

// mark makes and locks the file. Another run that looks for stale marks may win the lock in between; then it
// also removes the file, and this one needs another.
func (n *jobNames) mark() error {
	path := filepath.Join(sharedDir, n.prefix+lockSuffix)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		os.Remove(path)
		return err
	}
	n.lock = f
	return nil
}

// name is unique on the machine; it is the prefix of the job's shared-memory names.
func (n *jobNames) name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	return fmt.Sprintf("%s-%06d", n.prefix, n.next)
}

func (n *jobNames) close() {
	if n.lock == nil {
		return
	}
	os.Remove(n.lock.Name())
	n.lock.Close()
	n.lock = nil
}

// removeStale removes the shared memory of runs of this user that ended without doing so.
func removeStale() {
	locks, _ := filepath.Glob(filepath.Join(sharedDir, jobPrefix+"*"+lockSuffix))
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			prefix := strings.TrimSuffix(filepath.Base(path), lockSuffix)
			removeShared(prefix + "-")
			os.Remove(path)
		}
		f.Close()
	}
}
