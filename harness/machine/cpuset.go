package machine

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// parseCPUs reads a kernel list such as "0-3,8".
func parseCPUs(s string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(hi); err != nil {
				continue
			}
		}
		for c := a; c <= b && c-a < 1<<16; c++ {
			out = append(out, c)
		}
	}
	return out
}

// formatCPUs is the inverse of parseCPUs.
func formatCPUs(cpus []int) string {
	sort.Ints(cpus)
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(cpus[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// byValue folds a value per CPU into "value" when all agree, else "value on 0-3, value on 4-7".
func byValue(value map[int]string) string {
	cpus := map[string][]int{}
	for c, v := range value {
		cpus[v] = append(cpus[v], c)
	}
	if len(cpus) == 1 {
		for v := range cpus {
			return v
		}
	}
	var parts []string
	for v, list := range cpus {
		parts = append(parts, v+" on "+formatCPUs(list))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// sortNatural sorts names so that mlx5_2 comes before mlx5_10.
func sortNatural(names []string) {
	sort.Slice(names, func(i, j int) bool { return natural(names[i], names[j]) })
}

func natural(a, b string) bool {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			va, _ := strconv.ParseUint(a[:na], 10, 64)
			vb, _ := strconv.ParseUint(b[:nb], 10, 64)
			if va != vb {
				return va < vb
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return a[0] < b[0]
		}
		a, b = a[1:], b[1:]
	}
	return len(a) < len(b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && n < 18 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
