package cli

import (
	"strings"
)

// envPrefixes are the families of variables that change what the stacks do. Nothing else of the environment goes
// into a record: it may be anybody's.
var envPrefixes = []string{"NCCL_", "NVSHMEM_", "UCX_", "UCCL_", "EP_", "DEEP_EP_", "NIXL_", "FI_", "MSCCLPP_", "CUDA_",
	"OMPI_MCA_", "PMIX_MCA_", "MLX5_", "IBV_", "SLURM_", "TORCH_", "GIC_", "LD_LIBRARY_PATH"}

// envSecrets are parts of names whose values stay out even so. KEY alone is none: NCCL_IB_PKEY is a partition.
var envSecrets = []string{"TOKEN", "SECRET", "PASSW", "CREDENTIAL", "COOKIE", "AUTH", "JWT", "API_KEY", "PRIVATE_KEY", "ACCESS_KEY"}

// recordedEnv picks from an environment (os.Environ form) what the record keeps.
func recordedEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != answerEnv && hasAny(name, envPrefixes, strings.HasPrefix) &&
			!hasAny(strings.ToUpper(name), envSecrets, strings.Contains) {
			env[name] = value
		}
	}
	return env
}

func hasAny(name string, parts []string, has func(s, part string) bool) bool {
	for _, p := range parts {
		if has(name, p) {
			return true
		}
	}
	return false
}
