package cli

import (
	"gic/harness/attribution/oracle"
	"gic/harness/attribution/oracle/check"
)

// predictCheck prints the error table of the platforms.
func (a *app) predictCheck(p *predictFlags, args []string) error {
	if len(args) > 1 {
		return usagef("predict --check takes one DIR, got %q", args[1])
	}
	if p.format.value == "csv" {
		return usagef("--check prints a table or json")
	}
	dir := "results/paper"
	if len(args) == 1 {
		dir = args[0]
	}
	rows, err := check.ReadRows(dir)
	if err != nil {
		return usageError{err}
	}
	names := []string(p.platforms)
	if len(names) == 0 {
		names = oracle.Names()
	}
	platforms := map[string]*oracle.Platform{}
	for _, name := range names {
		pl, err := oracle.Load(name)
		if err != nil {
			return usageError{err}
		}
		platforms[pl.Name] = pl
	}
	measured := map[string]bool{}
	for _, w := range workloadList() {
		measured[w.Name()] = true
	}
	t := check.Run(rows, platforms, func(workload string) bool { return measured[workload] })
	if p.format.value == "json" {
		return a.printJSON(t)
	}
	return t.Render(a.stdout, width)
}
