package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Launch is what a launcher told this process.
type Launch struct {
	Kind                 string // mpirun, srun, torchrun; "local" without a launcher
	Rank, Size           int
	LocalRank, LocalSize int    // -1 and 0 when the launcher does not say
	JobID                string // same for all ranks of the launch and for no other launch running here
	// Master is MASTER_ADDR:MASTER_PORT+1 under torchrun: its own store listens at MASTER_PORT.
	Master string
}

// family is how one kind of launcher tells a process its place.
type family struct {
	kind, rank, size     string
	localRank, localSize string
	// applies says whether the variables are really of a launch.
	applies func(env map[string]string) bool
	jobID   func(env map[string]string) string
}

func always(map[string]string) bool { return true }

// families in order of precedence: the innermost launcher first. Slurm comes after Open MPI, since mpirun inside
// an allocation starts its daemons with srun and its ranks inherit their variables.
var families = []family{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", always, func(e map[string]string) string {
		return e["TORCHELASTIC_RUN_ID"] + " " + e["MASTER_ADDR"] + " " + e["MASTER_PORT"] + " " + e["TORCHELASTIC_RESTART_COUNT"]
	}},
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		always, func(e map[string]string) string {
			return first(e, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
		}},
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", slurmStep, slurmJob},
	{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", slurmStep, slurmJob},
	{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", always, func(e map[string]string) string {
		return first(e, "PMI_JOBID", "PMI_KVS", "HYDI_CONTROL_FD")
	}},
}

// slurmStep says whether the process is a task of a step of srun. A batch script and the shell of an allocation
// carry SLURM_PROCID=0 and the allocation's SLURM_NTASKS too, but are one process; their step ids, where set, are
// the reserved ones at the top of the range.
func slurmStep(e map[string]string) bool {
	id := first(e, "SLURM_STEP_ID", "SLURM_STEPID")
	n, err := strconv.ParseUint(id, 10, 64)
	return err == nil && n < 0xfffffff0
}

func slurmJob(e map[string]string) string {
	return first(e, "SLURM_JOB_ID", "SLURM_JOBID") + "." + first(e, "SLURM_STEP_ID", "SLURM_STEPID")
}

func first(e map[string]string, names ...string) string {
	for _, n := range names {
		if e[n] != "" {
			return e[n]
		}
	}
	return ""
}

// Discover reads the launcher's environment (os.Environ form). ok is false without a launcher, and when it
// started a single process: then gic starts its own ranks. Variables that contradict each other are an error
// that wraps ErrUsage.
func Discover(environ []string) (l Launch, ok bool, err error) {
	env := envMap(environ)
	l = Launch{Kind: "local", LocalRank: -1, Size: 1}
	found := ""
	for _, f := range families {
		if env[f.rank] == "" && env[f.size] == "" || !f.applies(env) {
			continue
		}
		if f.kind == "srun" && env[f.size] == "" {
			continue // the other name of the size
		}
		if found != "" {
			if err := agree(env, &l, found, f); err != nil {
				return l, false, err
			}
			continue
		}
		if l, err = f.read(env); err != nil {
			return l, false, err
		}
		found = f.rank
	}
	if r := env["PMIX_RANK"]; found == "" && r != "" {
		return l, false, fmt.Errorf("%w: PMIX_RANK=%s is set but no variable gives the number of ranks (OMPI_COMM_WORLD_SIZE, SLURM_NTASKS, PMI_SIZE)", ErrUsage, r)
	} else if found == "OMPI_COMM_WORLD_RANK" && r != "" && r != env[found] {
		return l, false, fmt.Errorf("%w: PMIX_RANK=%s contradicts %s=%s", ErrUsage, r, found, env[found])
	}
	if l.Kind == "torchrun" && l.Size > 1 && env["MASTER_ADDR"] != "" {
		port, err := strconv.ParseUint(env["MASTER_PORT"], 10, 16)
		if err != nil || port == 0 || port == 65535 {
			return l, false, fmt.Errorf("%w: MASTER_PORT=%s is not a port; allowed: 1..65534", ErrUsage, env["MASTER_PORT"])
		}
		host := env["MASTER_ADDR"]
		if strings.Contains(host, ":") {
			host = "[" + strings.Trim(host, "[]") + "]"
		}
		l.Master = fmt.Sprintf("%s:%d", host, port+1)
	}
	return l, found != "" && l.Size > 1, nil
}

// read takes the variables of one family.
func (f *family) read(env map[string]string) (Launch, error) {
	l := Launch{Kind: f.kind, LocalRank: -1}
	number := func(name string, least int, into *int) error {
		v, ok := env[name]
		if !ok || v == "" {
			return fmt.Errorf("%w: %s is not set beside %s", ErrUsage, name, other(name, f.rank, f.size))
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			return fmt.Errorf("%w: %s=%s is not an integer of at least %d", ErrUsage, name, v, least)
		}
		*into = n
		return nil
	}
	if err := number(f.size, 1, &l.Size); err != nil {
		return l, err
	}
	if err := number(f.rank, 0, &l.Rank); err != nil {
		return l, err
	}
	if l.Rank >= l.Size {
		return l, fmt.Errorf("%w: %s=%d is not below %s=%d", ErrUsage, f.rank, l.Rank, f.size, l.Size)
	}
	if env[f.localRank] != "" {
		if err := number(f.localRank, 0, &l.LocalRank); err != nil {
			return l, err
		}
	}
	if f.localSize != "" && env[f.localSize] != "" {
		if err := number(f.localSize, 1, &l.LocalSize); err != nil {
			return l, err
		}
	} else if f.kind == "srun" && first(env, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") == "1" {
		l.LocalSize = l.Size
	}
	if l.LocalSize > l.Size || l.LocalSize > 0 && l.LocalRank >= l.LocalSize {
		return l, fmt.Errorf("%w: %s=%d and %s=%d do not fit %s=%d", ErrUsage,
			f.localRank, l.LocalRank, f.localSize, l.LocalSize, f.size, l.Size)
	}
	l.JobID = strings.TrimSpace(f.jobID(env))
	if strings.Trim(l.JobID, ".") == "" {
		// The launcher's daemon is the parent of all its ranks on this host.
		l.JobID = fmt.Sprintf("parent %d", os.Getppid())
	}
	l.JobID = f.kind + " " + l.JobID
	return l, nil
}

func other(name, a, b string) string {
	if name == a {
		return b
	}
	return a
}

// agree checks a second family's variables against the launch already found. torchrun says by TORCHELASTIC_RUN_ID
// that it is the innermost, and Slurm's are inherited through every other launcher: these may differ. Otherwise
// one of the two was left in the environment, and which is a guess.
func agree(env map[string]string, l *Launch, found string, f family) error {
	if f.kind == "srun" || env["TORCHELASTIC_RUN_ID"] != "" || env[f.rank] == "" || env[f.size] == "" {
		return nil
	}
	if env[f.rank] == strconv.Itoa(l.Rank) && env[f.size] == strconv.Itoa(l.Size) {
		return nil
	}
	return fmt.Errorf("%w: %s=%d of %d contradicts %s=%s of %s=%s: two launchers, or variables left over from one; unset those that do not apply",
		ErrUsage, found, l.Rank, l.Size, f.rank, env[f.rank], f.size, env[f.size])
}
