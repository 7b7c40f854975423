package plugin

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// Library is one shared object that this process has really mapped.
type Library struct {
	Name    string `json:"name"`              // "libnccl"
	Version string `json:"version,omitempty"` // as far as the file tells
	Path    string `json:"path"`
	SHA256  string `json:"sha256,omitempty"` // empty when the file cannot be read any more
}

// stacks are the libraries whose identity a record needs: what else is mapped does not move a number.
var stacks = regexp.MustCompile(`^(gic_nvshmem\.so|libnccl|libnvshmem|nvshmem_(transport|bootstrap)_|libcudart|libcuda\.so|libibverbs\.so|libmlx5\.so|libgdrapi|libdeep_?ep|deep_ep)`)

// Loaded lists the plugins and the communication and CUDA libraries mapped into this process, by path. Call it
// after Open: stacks load their libraries as late as they can.
func Loaded() ([]Library, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	loadedMu.Lock()
	plugins := map[string]string{}
	for path, p := range loaded {
		plugins[path] = p.info.Version
	}
	loadedMu.Unlock()
	return mapped(f, plugins)
}

func mapped(maps io.Reader, plugins map[string]string) ([]Library, error) {
	paths := map[string]bool{}
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// address perms offset dev inode path; the path may hold blanks.
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 {
			continue
		}
		path := strings.TrimSpace(fields[5])
		_, ours := plugins[path]
		if ours || stacks.MatchString(filepath.Base(path)) {
			paths[path] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	var out []Library
	for path := range paths {
		base := filepath.Base(path)
		name, _, _ := strings.Cut(base, ".so")
		lib := Library{Name: name, Path: path, SHA256: hash(path), Version: fileVersion(path)}
		if v, ours := plugins[path]; ours {
			lib.Version = v
		}
		out = append(out, lib)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, nil
}

var (
	soVersion = regexp.MustCompile(`\.so\.([0-9][0-9.]*)`)
	distInfo  = regexp.MustCompile(`^(.+)-([0-9][^-]*)\.dist-info$`)
)

// fileVersion reads a library's version off its real file name; where that has only the major number and the
// file lies in a Python wheel (site-packages/nvidia/nccl/lib/libnccl.so.2), off the wheel's own version.
func fileVersion(path string) string {
	version := ""
	if m := soVersion.FindStringSubmatch(filepath.Base(path)); m != nil {
		version = m[1]
	}
	if strings.Contains(version, ".") {
		return version
	}
	site, inside, ok := strings.Cut(path, "/site-packages/")
	if !ok {
		return version
	}
	parts := strings.Split(inside, "/")
	pkg := strings.Join(parts[:min(2, len(parts)-1)], "_") // nvidia_nccl
	dirs, err := os.ReadDir(site + "/site-packages")
	if err != nil || pkg == "" {
		return version
	}
	for _, d := range dirs {
		m := distInfo.FindStringSubmatch(d.Name())
		if m != nil && strings.HasPrefix(strings.ReplaceAll(m[1], "-", "_")+"_", pkg+"_") {
			return m[2]
		}
	}
	return version
}

// HashesEnv names a folder, private to a run, in which its processes keep the hashes of files: each has a driver's
// library of a hundred megabytes to read otherwise.
const HashesEnv = "GIC_HASHES"

// hash gives the SHA-256 of a file, "" when it cannot be read. One that was not touched since is not read again.
func hash(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	kept := keptHash(f)
	if b, err := os.ReadFile(kept); err == nil && len(b) == hex.EncodedLen(sha256.Size) {
		return string(b)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if kept != "" {
		keep(kept, sum)
	}
	return sum
}

// keptHash is where the hash of a file in its present state is kept; "" for nowhere.
func keptHash(f *os.File) string {
	dir := os.Getenv(HashesEnv)
	info, err := f.Stat()
	if dir == "" || err != nil {
		return ""
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", f.Name(), info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(dir, hex.EncodeToString(id[:16]))
}

// keep writes a hash for other processes; one that cannot is none the worse.
func keep(path, sum string) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return
	}
	_, err = tmp.WriteString(sum)
	if tmp.Close() != nil || err != nil || os.Rename(tmp.Name(), path) != nil {
		os.Remove(tmp.Name())
	}
}
