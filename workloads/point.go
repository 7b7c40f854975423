package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gic/backends"
)

// Simulator is a job that can be carried out in Go on plain memory, for a backend without device code (fake) and
// for tests. It moves every byte that the kernels of all ranks move, leaves the windows as they do, and returns
// one result per rank whose times are made up. Counters and Verify are left empty.
type Simulator interface {
	Simulate(windows []Memory) ([]RankResult, error)
}

// Within returns an integer axis that must lie in [low, high].
func (p Point) Within(axis string, low, high int) (int, error) {
	v, err := p.Int(axis)
	if err != nil || v < low || v > high {
		return 0, fmt.Errorf("%s=%s is not allowed: an integer in %d..%d", axis, p[axis], low, high)
	}
	return v, nil
}

// OneOf returns the index of a text axis' value in allowed.
func (p Point) OneOf(axis string, allowed ...string) (int, error) {
	i := slices.Index(allowed, p[axis])
	if i < 0 {
		return 0, fmt.Errorf("%s=%s is not allowed: %s", axis, p[axis], strings.Join(allowed, "|"))
	}
	return i, nil
}

const pointPrefix = "axis."

// Args returns the point and the seed in the form of backends.Run.Args: each axis as "axis.<name>", and "seed".
// The device half does not read them; they let a backend in Go prepare the same job again.
func (p Point) Args(seed uint64) map[string]string {
	args := map[string]string{"seed": strconv.FormatUint(seed, 10)}
	for axis, value := range p {
		args[pointPrefix+axis] = value
	}
	return args
}

// PointOf takes the point and the seed out of a run's arguments.
func PointOf(args map[string]string) (Point, uint64, error) {
	p := Point{}
	for key, value := range args {
		if axis, ok := strings.CutPrefix(key, pointPrefix); ok {
			p[axis] = value
		}
	}
	seed, err := strconv.ParseUint(args["seed"], 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("seed=%s is not an unsigned integer", args["seed"])
	}
	return p, seed, nil
}

// Add counts n operations of `bytes` payload each.
func (o *Ops) Add(op backends.Op, n, bytes uint64) {
	o.Count[op] += n
	o.PayloadBytes += n * bytes
}

// MaxWindow bounds the window of one rank: above it a point is a mistake, and every size fits 64 bits easily.
const MaxWindow = 64 << 30

// CheckWindow rejects a window above MaxWindow; axes names what to lower.
func CheckWindow(bytes uint64, axes string) error {
	if bytes > MaxWindow {
		return fmt.Errorf("window of %d bytes per rank is not allowed: at most %d; lower %s", bytes, uint64(MaxWindow), axes)
	}
	return nil
}
