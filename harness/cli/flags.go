package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/pflag"

	"gic/harness/plan"
)

// flagGroup is a set of flags that the help shows under one title.
type flagGroup struct {
	title string
	set   *pflag.FlagSet
}

// flags are the flags of a command, in groups.
type flags struct {
	command string
	all     *pflag.FlagSet
	groups  []*flagGroup
	help    bool
}

func newFlags(command string) *flags {
	f := &flags{command: command, all: pflag.NewFlagSet(command, pflag.ContinueOnError)}
	f.all.SortFlags = false
	f.all.Usage = func() {}
	f.all.BoolVarP(&f.help, "help", "h", false, "show this help")
	f.all.Lookup("help").Hidden = true // every command has it
	return f
}

// group starts a titled group; flags are added to the set it returns before parse.
func (f *flags) group(title string) *pflag.FlagSet {
	g := &flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	g.set.SortFlags = false
	f.groups = append(f.groups, g)
	return g.set
}

// parse reads args. Errors are usage errors that list what is known.
func (f *flags) parse(args []string) error {
	for _, g := range f.groups {
		f.all.AddFlagSet(g.set)
	}
	err := f.all.Parse(args)
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return usagef("unknown flag -%s; gic %s has: %s", short[:1], f.command, strings.Join(f.names(), ", "))
		}
		hint := ""
		if n := plan.Nearest("--"+name, f.names()); n != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", n)
		}
		return usagef("unknown flag --%s%s; gic %s has: %s", name, hint, f.command, strings.Join(f.names(), ", "))
	}
	if errors.As(err, &invalid) {
		return usagef("--%s %s is not allowed; %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return usageError{err}
}

func (f *flags) names() []string {
	var names []string
	f.all.VisitAll(func(fl *pflag.Flag) {
		if !fl.Hidden {
			names = append(names, "--"+fl.Name)
		}
	})
	return names
}

// usages renders the groups for the help: name and argument, then what it does, within width.
func (f *flags) usages() string {
	var b strings.Builder
	for _, g := range f.groups {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		t := newTable(&b)
		t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, WidthMin: 28}, {Number: 2}})
		g.set.VisitAll(func(fl *pflag.Flag) {
			arg, usage := pflag.UnquoteUsage(fl)
			if arg != "" {
				arg = " " + arg
			}
			t.AppendRow(table.Row{"  --" + fl.Name + arg, wrap(usage, width-32)})
		})
		t.Render()
	}
	return b.String()
}

// oneOf is a flag whose values are a fixed list.
type oneOf struct {
	value   string
	allowed []string
}

func (o *oneOf) String() string { return o.value }
func (o *oneOf) Type() string   { return "WORD" }
func (o *oneOf) Set(v string) error {
	for _, a := range o.allowed {
		if v == a {
			o.value = v
			return nil
		}
	}
	return fmt.Errorf("allowed: %s", strings.Join(o.allowed, ", "))
}

// words is a flag that may be repeated; its values are kept as they are (a comma is part of a value).
type words []string

func (w *words) String() string { return strings.Join(*w, " ") }
func (w *words) Type() string   { return "SPEC" }
func (w *words) Set(v string) error {
	*w = append(*w, v)
	return nil
}

// natural is a flag that takes an integer of a range; 0 means not given.
type natural struct {
	value, max int
}

func (n *natural) String() string { return "" }
func (n *natural) Type() string   { return "N" }
func (n *natural) Set(v string) error {
	i, err := plan.ParseInt(v)
	if err != nil || i < 1 || i > int64(n.max) {
		return fmt.Errorf("allowed: 1..%d", n.max)
	}
	n.value = int(i)
	return nil
}

// partFlag is a share of a plan, "2/4".
type partFlag struct{ plan.Part }

func (p *partFlag) Type() string { return "k/n" }
func (p *partFlag) Set(v string) (err error) {
	p.Part, err = plan.ParsePart(v)
	return err
}
