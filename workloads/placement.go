package workloads

import (
	"fmt"
	"slices"
	"strconv"

	"gic/backends"
)

// Placement is where a point's posting threads run, and to which queues they post: both move a time by half, so that a
// figure is of one place, or a median over many. The axes are placement, first_qp and places; backends/abi/driver.cuh
// says what the device half makes of them.
type Placement struct {
	sm, queue, places int
	together          int // in togethers
}

// How all posting threads share one multiprocessor, as values of the axis placement; the device half gets the number.
var togethers = []string{"", "warps", "lanes"}

// Axes of a placement.
func PlacementAxes() []Axis {
	key := func(name, value, allowed, help string) Axis {
		return Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return []Axis{
		key("placement", "0", "0..1024|warps|lanes", "multiprocessor of the first posting thread on a CUDA device, from 1, the others on those behind it; 0: where the device puts them; warps, lanes: all in one block of one, as a warp each or as the lanes of full warps"),
		key("first_qp", "0", "0..527", "queue pair of the first posting thread, of those to a peer; the others take those behind it"),
		key("places", "1", "1..64", "placements that the point is repeated at: evenly over the multiprocessors, and from one to the next over the queues; the median of a process run is over all of them"),
	}
}

// Parse takes the axes of a point.
func (p *Placement) Parse(pt Point) error {
	sm := pt
	if i := slices.Index(togethers, pt["placement"]); i > 0 {
		p.together, sm = i, Point{"placement": "0"}
	}
	for _, a := range []struct {
		from      Point
		axis      string
		low, high int
		value     *int
	}{{sm, "placement", 0, 1024, &p.sm}, {pt, "first_qp", 0, 527, &p.queue}, {pt, "places", 1, 64, &p.places}} {
		v, err := a.from.Within(a.axis, a.low, a.high)
		if err != nil {
			return err
		}
		*a.value = v
	}
	if p.places > 1 && (p.sm != 0 || p.queue != 0) {
		return fmt.Errorf("places=%d with placement=%d, first_qp=%d is not allowed: it chooses both", p.places, p.sm, p.queue)
	}
	return nil
}

// Runs is how often the point is carried out.
func (p *Placement) Runs() int { return p.places }

// Together is the device half's number for all posting threads in one block, 0 otherwise.
func (p *Placement) Together() int { return p.together }

// Put adds the device half's inputs for run i; posts: this rank's threads are the ones that are placed.
func (p *Placement) Put(args map[string]string, i int, posts bool) {
	in := map[string]int{"placement": 0, "first_qp": p.queue, "place": 0, "places": 1, "placed": 0}
	if posts {
		in["placement"] = p.sm
	}
	if posts && p.together > 0 {
		in["together"] = p.together
	}
	if p.places > 1 {
		in["place"], in["places"] = i, p.places
		if posts {
			in["placed"] = 1
		}
	}
	for k, v := range in {
		args[k] = strconv.Itoa(v)
	}
}

// Facts tells where the runs of a rank really were, one value per run: the facts place_multiprocessor, counted from 0,
// and place_queue, where the device half says them.
func (p *Placement) Facts(s *Summary, r RankResult) {
	for _, name := range []string{"place_multiprocessor", "place_queue"} {
		if v := r.Get(name); len(v) == p.places && p.places > 1 {
			s.Facts[name] = slices.Clone(v)
		}
	}
}

// Medians are those of n parts of equally many values.
func Medians(values []float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = Median(values[i*len(values)/n : (i+1)*len(values)/n])
	}
	return out
}
