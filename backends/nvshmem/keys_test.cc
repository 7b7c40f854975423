// Which settings of the NVSHMEM backend go together, and what a refusal says. No look at the machine.
#include "backends/nvshmem/nvshmem.h"

namespace {

int failures;

struct Case {
    const char *nic;
    std::vector<gic_kv> config, nic_config;
    int status;
    const char *text; // part of the refusal
};

void check(const Case &c) {
    gic_open open{};
    open.nranks = 2;
    open.device = "cuda:0";
    open.nic = c.nic;
    open.config = c.config.data();
    open.config_count = (uint32_t)c.config.size();
    open.nic_config = c.nic_config.data();
    open.nic_config_count = (uint32_t)c.nic_config.size();
    gic::error_text() = "";
    const int status = nvshmem_backend::check_keys(&open);
    const std::string said = gic::error_text();
    if (status == c.status && (status == 0 || said.find(c.text) != std::string::npos))
        return;
    failures++;
    printf("nic=%s", c.nic);
    for (const gic_kv &kv : c.config)
        printf(" %s=%s", kv.key, kv.value);
    printf(": %d \"%s\", want %d with \"%s\"\n", status, said.c_str(), c.status, c.text);
}

// A run that would go over another path than it is asked for does not begin.
void check_paths() {
    using nvshmem_backend::Path;
    const struct {
        Path path;
        std::vector<bool> mapped; // at rank 1, whose own always is
        int status;
        const char *text;
    } cases[] = {
        {Path::ibgda, {false, true, false}, 0, ""},
        {Path::ibrc, {false, true}, 0, ""},
        {Path::p2p, {true, true, true}, 0, ""},
        {Path::ibgda, {true, true}, -EIO, "path=ibgda, but PE 0's heap is mapped here"},
        {Path::ibgda, {false, true, true}, -EIO, "path=ibgda, but PE 2's heap is mapped here"},
        {Path::ibrc, {true, true}, -EIO, "path=ibrc, but PE 0's heap is mapped here"},
        {Path::p2p, {false, true}, -ENOTSUP, "NVSHMEM does not map PE 0's heap"},
        {Path::p2p, {true, true, false}, -ENOTSUP, "NVSHMEM does not map PE 2's heap"},
    };
    for (const auto &c : cases) {
        gic::error_text() = "";
        const int status = nvshmem_backend::check_path(c.path, 1, c.mapped);
        if (status != c.status || (status && gic::error_text().find(c.text) == std::string::npos)) {
            failures++;
            printf("path %d: %d \"%s\", want %d with \"%s\"\n", (int)c.path, status,
                   gic::error_text().c_str(), c.status, c.text);
        }
    }
}

} // namespace

int main() {
    const Case cases[] = {
        {"soft", {}, {}, 0, ""},
        {"none", {}, {}, 0, ""},
        {"soft", {{"path", "ibgda"}, {"rc", "512"}, {"depth", "32768"}, {"batch", "1024"}}, {}, 0, ""},
        {"none", {{"path", "p2p"}, {"scope", "warp"}, {"level", "public"}}, {}, 0, ""},
        {"none", {{"level", "inlined"}}, {}, 0, ""},
        {"soft", {{"level", "internal"}, {"completion", "queue"}}, {}, 0, ""},
        {"soft", {{"fault", "withdraw"}}, {}, 0, ""},
        {"soft", {}, {{"engine", "cpu"}, {"doorbell", "host"}}, 0, ""},
        {"soft", {{"level", "internal"}, {"rc", "32"}}, {{"engine", "gpu"}}, 0, ""},
        {"soft", {{"scope", "block"}}, {{"engine", "gpu"}, {"window", "host"}}, 0, ""},
        {"soft", {{"path", "ibrc"}, {"level", "inlined"}}, {}, 0, ""},
        {"soft", {{"handler", "host"}, {"level", "internal"}}, {}, 0, ""},
        {"mlx5_0", {{"path", "ibrc"}}, {}, 0, ""}, // which the probe looks for
        {"mlx5_0", {{"handler", "host"}, {"transport", "vendor"}}, {}, 0, ""},
        {"soft", {{"transport", "own"}}, {}, 0, ""},
        {"soft", {{"rc", "0"}}, {}, 0, ""},
        {"soft",
         {{"rc", "0"}, {"dci", "8"}, {"shared_dci", "4"}, {"dci_map", "dct"}, {"dct", "64"}},
         {{"engine", "gpu"}},
         0,
         ""},
        {"soft", {{"rc", "0"}}, {{"profile", "cx7-200"}}, 0, ""},
        {"soft", {{"vmm", "on"}}, {{"engine", "gpu"}}, 0, ""},
        {"none", {{"vmm", "off"}}, {}, 0, ""},
        // What a machine or a build could give one day is a skipped row.
        {"none", {{"path", "ibrc"}}, {}, -ENOTSUP, "path=ibrc needs a NIC"},
        {"none", {{"rc", "0"}}, {}, -ENOTSUP, "rc=0: DC queue pairs are of path=ibgda"},
        {"soft", {{"rc", "0"}, {"path", "ibrc"}}, {}, -ENOTSUP, "rc=0: DC queue pairs are of path=ibgda"},
        {"soft", {{"rc", "0"}}, {{"engine", "gpu"}, {"profile", "cx7-200"}}, -ENOTSUP, "profile=cx7-200"},
        {"soft", {{"vmm", "on"}}, {}, -ENOTSUP, "vmm=on: the heap is in host memory"},
        {"soft", {{"vmm", "on"}}, {{"engine", "gpu"}, {"window", "host"}}, -ENOTSUP, "vmm=on"},
        {"soft", {{"transport", "vendor"}}, {}, -ENOTSUP, "transport=vendor drives a real ConnectX"},
        {"mlx5_0", {{"transport", "own"}}, {}, -ENOTSUP, "transport=own is for the software NIC"},
        {"none", {{"path", "ibgda"}}, {}, -ENOTSUP, "path=ibgda needs a NIC"},
        {"soft", {{"path", "p2p"}}, {}, -ENOTSUP, "path=p2p uses no NIC"},
        {"mlx5_0", {{"path", "p2p"}}, {}, -ENOTSUP, "path=p2p uses no NIC"},
        {"mlx5_0", {{"fault", "withdraw"}}, {}, -ENOTSUP, "fault=withdraw needs the software NIC"},
        {"soft", {{"path", "ibrc"}}, {{"engine", "gpu"}}, -ENOTSUP, "path=ibrc with engine=gpu"},
        {"soft", {{"handler", "host"}}, {{"engine", "gpu"}}, -ENOTSUP, "handler=host with engine=gpu"},
        {"soft", {{"path", "ibrc"}, {"handler", "host"}}, {}, -ENOTSUP, "want path=ibgda"},
        {"soft", {{"path", "ibrc"}, {"level", "internal"}}, {}, -ENOTSUP, "want path=ibgda"},
        {"soft", {}, {{"doorbell", "gpu"}}, -ENOTSUP, "doorbell=gpu"},
        {"soft", {}, {{"engine", "gpu"}, {"doorbell", "gpu"}}, -ENOTSUP, "doorbell=gpu"},
        {"none", {{"level", "internal"}}, {}, -ENOTSUP, "level=internal"},
        {"soft", {{"completion", "queue"}}, {}, -ENOTSUP, "completion=queue"},
        {"soft", {{"quiet", "warp"}, {"scope", "warp"}}, {}, 0, ""},
        {"soft", {{"quiet", "warp"}}, {}, -ENOTSUP, "quiet=warp with scope=thread"},
        {"soft", {{"level", "inlined"}, {"scope", "warp"}}, {}, -ENOTSUP, "level=inlined"},
        {"soft", {{"level", "internal"}, {"scope", "block"}}, {}, -ENOTSUP, "level=internal"},
        {"none", {{"fault", "withdraw"}}, {}, -ENOTSUP, "fault=withdraw"},
        // What can never be is a wrong value.
        {"soft", {{"rc", "0"}, {"shared_dci", "2"}}, {}, -EINVAL, "shared_dci=2 with dci=1"},
        {"soft", {{"dci", "4"}}, {}, -EINVAL, "dci=4 with rc=2: DC queue pairs carry nothing"},
        {"soft", {{"dci_map", "dct"}}, {}, -EINVAL, "dci_map=dct with rc=2"},
        {"soft", {{"dct", "4"}, {"rc", "1"}}, {}, -EINVAL, "dct=4 with rc=1"},
        {"soft", {{"vmm", "yes"}}, {}, -EINVAL, "vmm=yes"},
        {"soft", {{"rc", "513"}}, {}, -EINVAL, "rc=513"},
        {"soft", {{"depth", "1000"}}, {}, -EINVAL, "depth=1000: want a power of two"},
        {"soft", {{"depth", "64"}}, {}, -EINVAL, "depth=64"},
        {"soft", {{"batch", "256"}, {"depth", "128"}}, {}, -EINVAL, "batch=256 with depth=128"},
        {"soft", {{"heap", "0"}}, {}, -EINVAL, "heap=0"},
        {"soft", {{"map", "dct"}}, {}, -EINVAL, "map=dct: want one of cta|sm|warp"},
        {"soft", {{"no_such_key", "1"}}, {}, -EINVAL, "no_such_key"},
    };
    for (const Case &c : cases)
        check(c);
    check_paths();
    printf(failures ? "keys_test: %d failed\n" : "keys_test: ok\n", failures);
    return failures != 0;
}
