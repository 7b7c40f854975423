package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// allowedCPUs counts the CPUs that this process may use; 0 when it cannot be told.
func allowedCPUs() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return 0
	}
	return set.Count()
}

// unbind undoes a launcher's binding of this process to one core (Open MPI's default for small launches): a rank
// needs several threads at once. It returns what it did or could not do, for the record; "" when there was no
// such binding.
//
// The kernel keeps the process inside its cpuset whatever is asked for. Under Slurm the cpuset is trusted only
// where Slurm made it; elsewhere the other CPUs may be another job's.
func unbind(environ []string) string {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || !oneCore(&set) {
		return ""
	}
	n := set.Count()
	if env := envMap(environ); env["SLURM_JOB_ID"] != "" && !cpusetOfSlurm() {
		return fmt.Sprintf("bound to %d CPU by the launcher, and no cpuset shows what else the job may use; use srun --cpu-bind=none", n)
	}
	var all unix.CPUSet
	for i := range 8 * 8 * len(all) {
		all.Set(i)
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		return fmt.Sprintf("bound to %d CPU by the launcher", n)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &all); err != nil && err != unix.ESRCH {
			return fmt.Sprintf("bound to %d CPU by the launcher, not undone: %v", n, err)
		}
	}
	if m := allowedCPUs(); m > n {
		return fmt.Sprintf("the launcher's binding to %d CPU was undone: %d CPUs", n, m)
	}
	return ""
}

// oneCore says whether all CPUs of the set are hardware threads of one core.
func oneCore(set *unix.CPUSet) bool {
	n := set.Count()
	if n <= 1 {
		return n == 1
	}
	core := ""
	for i := 0; n > 0; i++ {
		if !set.IsSet(i) {
			continue
		}
		n--
		b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i))
		if err != nil || core != "" && core != string(b) {
			return false
		}
		core = string(b)
	}
	return true
}

// cpusetOfSlurm says whether the process is in a control group that Slurm made.
func cpusetOfSlurm() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && strings.Contains(string(b), "slurm")
}

func envMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}
