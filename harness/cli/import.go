package cli

import (
	"fmt"
	"path/filepath"
	"time"

	"gic/harness/importer"
	"gic/harness/record"
	store "gic/harness/results"
)

const helpImport = `Usage: gic import FILE... [flags]

Reads what other tools print and writes it as reference rows: they stand in tables and diffs beside
measured ones, marked imported, with the file named, and are never a best floor. Several files that
hold the same case are process runs of it.

  $ gic import nccl.json perftest.txt --out results/local/reference
  $ gic import --from nvshmem put_bw.log --set nic=mlx5 --as nvshmem
  $ gic show results/local/cx7 results/local/reference

Formats: nccl-tests (-J file, or the table), perftest (linux-rdma: --out_json_file, or the table),
nvshmem (perftest tables, &&&& PERF lines), deepep (its tests' output), collectivex, benchfmt, csv.
csv is that of --format csv, or has the columns workload, backend, metric, value and unit, and may
have index (the process run), nic, device, ranks, seed, status, reason, workload.AXIS, backend.KEY,
nic.KEY and fact.NAME (what else is known: a table, a clock).

Values are converted to s, B/s and msg/s exactly. A zero, missing or malformed value is named with
file and line and makes the exit status 1; everything else is imported all the same.

Exit status: 0 all was taken; 1 some values were not, each is named; 2 the request makes no sense or
a file holds nothing to import: nothing was written.
`

type importFlags struct {
	from    oneOf
	out, as string
	set     words
	all     bool
}

func newImportFlags() (*flags, *importFlags) {
	f, i := newFlags("import"), &importFlags{from: oneOf{importer.Auto, importer.Formats()}}
	g := f.group("Flags")
	g.Var(&i.from, "from", "format of the files; auto finds it out")
	g.StringVar(&i.out, "out", "", "write run.jsonl into the folder `DIR`, which must not have one; else <time>-<id> below $GIC_RESULTS or results/local")
	g.StringVar(&i.as, "as", "", "`NAME` of the backend in the rows instead of the tool's")
	g.Var(&i.set, "set", "a key that the files do not say, as KEY=VALUE: ranks, nic, device, workload.AXIS, backend.KEY, nic.KEY; may be repeated")
	g.BoolVar(&i.all, "all-notes", false, "name every line that was passed over, not just the first ones")
	return f, i
}

// mostNotes is how many passed-over lines of a file are named without being asked.
const mostNotes = 5

// importResults is gic import.
func (a *app) importResults(args []string) error {
	f, i := newImportFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("import")
	}
	if f.all.NArg() == 0 {
		return usagef("import takes at least one FILE")
	}
	set, err := importer.CheckSet(i.set)
	if err != nil {
		return usageError{err}
	}
	opt := importer.Options{Format: i.from.value, As: i.as, Set: set, Env: recordedEnv}
	var results []*importer.Result
	seen := map[string]string{}
	problems := 0
	for _, file := range f.all.Args() {
		r, err := importer.ReadFile(file, opt)
		if err != nil {
			return usageError{err}
		}
		if first, twice := seen[r.Source.SHA256]; twice {
			return usagef("%s and %s are the same bytes: one result is not two process runs", first, file)
		}
		seen[r.Source.SHA256] = file
		a.importMessages(r, i.all)
		problems += len(r.Problems)
		results = append(results, r)
	}
	header := record.Header{Gic: Version(), Command: append([]string{"gic", "import"}, args...), Time: time.Now().UTC().Truncate(time.Second)}
	header.ID = importer.NewID(header.Time)
	dir := i.out
	if dir == "" {
		dir = filepath.Join(store.Open("").Dir, header.ID)
	}
	path, err := importer.Write(dir, results, header)
	if err != nil {
		return usageError{err}
	}
	for _, r := range results {
		fmt.Fprintf(a.stdout, "%s: %s of %s\n", r.Source.File, count(len(r.Cases), "row"), r.Source.Format)
	}
	fmt.Fprintf(a.stdout, "written to %s\n", path)
	if problems > 0 {
		fmt.Fprintf(a.stderr, "gic: %s could not be imported\n", count(problems, "value"))
		return exitError(exitFailed)
	}
	return nil
}

// importMessages names what could not be taken, and the first of what was passed over.
func (a *app) importMessages(r *importer.Result, all bool) {
	for _, p := range r.Problems {
		fmt.Fprintf(a.stderr, "gic: %s\n", oneLine(p))
	}
	notes := r.Notes
	if !all && len(notes) > mostNotes {
		notes = notes[:mostNotes]
	}
	for _, n := range notes {
		fmt.Fprintf(a.stderr, "gic: note: %s\n", oneLine(n))
	}
	if left := len(r.Notes) - len(notes); left > 0 {
		fmt.Fprintf(a.stderr, "gic: note: %s: %s more (--all-notes names them)\n", r.Source.File, count(left, "such line"))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
