package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gic/harness/record"
)

// reach says, for goodput over payload size, which size is the first to reach 90 % of the best, per row.
func (s *section) reach() []string {
	type curve struct {
		label  string
		points []*cell
		sizes  []string
	}
	var order []*curve
	byKey := map[string]*curve{}
	for _, p := range s.points { // sorted by axes, so by size
		for _, m := range p.metrics {
			if m.name != "goodput" || p.axes["size"] == "" {
				continue
			}
			for _, c := range m.cells {
				if c.runs == 0 || c.row.status != record.OK || c.missing {
					continue
				}
				key, other := c.row.label+"\x00"+c.row.place, ""
				for _, k := range slices.Sorted(maps.Keys(p.axes)) {
					if k == "size" {
						continue
					}
					key += "\x00" + k + "=" + p.axes[k]
					if !slices.ContainsFunc(s.common, func(kv record.KeyValue) bool { return kv.Key == k }) {
						other += " " + k + "=" + p.axes[k]
					}
				}
				cv := byKey[key]
				if cv == nil {
					cv = &curve{label: c.row.label + " " + c.row.where() + other}
					byKey[key] = cv
					order = append(order, cv)
				}
				cv.points, cv.sizes = append(cv.points, c), append(cv.sizes, p.axes["size"])
			}
		}
	}
	var parts []string
	for _, cv := range order {
		if len(cv.points) < 2 {
			continue
		}
		best := 0
		for i, c := range cv.points {
			if c.stats.Median > cv.points[best].stats.Median {
				best = i
			}
		}
		first := slices.IndexFunc(cv.points, func(c *cell) bool {
			return c.stats.Median >= 0.9*cv.points[best].stats.Median
		})
		parts = append(parts, fmt.Sprintf("%s %s (best %s GB/s at %s)", cv.label, cv.sizes[first],
			number(cv.points[best].stats.Median/1e9), cv.sizes[best]))
	}
	if parts == nil {
		return nil
	}
	return []string{"first size to reach 90 % of the best goodput: " + strings.Join(parts, "; ")}
}
