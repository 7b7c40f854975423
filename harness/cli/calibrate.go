package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/attribution/oracle/calibrate"
)

const helpCalibrate = `Usage: gic calibrate DIR|FILE... --output FILE [flags]

Fits a platform file from the records of runs: what the floors' single operations, rates and goodput
say of this machine. gic predict takes the file with --platform. Each constant has the number of its
points, the largest residual and the range that was sampled, outside which nothing is predicted.
What the records cannot tell is refused, with one line each.

  $ gic calibrate results/local/mine --output mine.yaml
  $ gic predict --platform mine.yaml
  $ gic show results/local/mine --platform mine.yaml

Records of a software NIC (nic=soft) or of host threads (device=host) make a platform that says so.
`

type calibrateFlags struct{ out, name string }

func newCalibrateFlags() (*flags, *calibrateFlags) {
	f, c := newFlags("calibrate"), &calibrateFlags{}
	g := f.group("Flags")
	g.StringVarP(&c.out, "output", "o", "", "write the platform to `FILE`")
	g.StringVar(&c.name, "name", "", "`NAME` of the platform, default the file's")
	return f, c
}

func (a *app) calibrate(args []string) error {
	f, c := newCalibrateFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("calibrate")
	}
	if f.all.NArg() == 0 {
		return usagef("calibrate takes at least one DIR or FILE; runs are kept in $GIC_RESULTS or results/local unless --out says otherwise")
	}
	if c.out == "" {
		return usagef("calibrate needs --output FILE, which gic predict --platform reads")
	}
	files, err := recordFiles(f.all.Args())
	if err != nil {
		return err
	}
	records := calibrate.NewRecords()
	for _, file := range files {
		if err := records.Add(file); err != nil {
			return usageError{err}
		}
	}
	name := c.name
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(c.out), filepath.Ext(c.out))
	}
	res, err := records.Fit(name)
	if err != nil {
		return usageError{err}
	}
	data, err := res.Platform.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.out, data, 0o644); err != nil {
		return usagef("write %s: %w", c.out, unwrapPath(err))
	}
	a.printPlatform(res.Platform)
	t := newTable(a.stdout, "constant", "value", "two deviations", "fit")
	right := func(n int) table.ColumnConfig {
		return table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs([]table.ColumnConfig{{}, right(2), right(3)})
	before := ""
	for _, k := range res.Platform.Constants {
		fit := k.Fit
		if fit == before {
			fit = "(the same)"
		}
		before = k.Fit
		interval := "-"
		if k.Low != nil {
			interval = fmt.Sprintf("%.4g..%.4g", *k.Low, *k.High)
		}
		t.AppendRow(table.Row{wrap(strings.Join(append([]string{k.Name}, settings(k.For)...), " "), 30), k.Text(), interval, wrap(fit, 24)})
	}
	t.Render()
	if len(res.Refused) > 0 {
		fmt.Fprintln(a.stdout)
		for _, line := range res.Refused {
			fmt.Fprintf(a.stdout, "refused: %s\n", indent(wrap(line, width-9), 2))
		}
	}
	fmt.Fprintf(a.stderr, "wrote %s: %s from %s\n", c.out, plural(len(res.Platform.Constants), "constant"), plural(res.Points, "point"))
	return nil
}
