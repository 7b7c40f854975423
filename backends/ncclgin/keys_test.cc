// Which settings of the NCCL GIN backend go together, and what a refusal says. No look at the machine.
#include "backends/ncclgin/ncclgin.h"

namespace {

int failures;

struct Case {
    const char *nic;
    std::vector<gic_kv> config;
    int status;
    const char *text; // part of the refusal, or the path that is taken
};

void check(const Case &c) {
    gic_open open{};
    open.nranks = 2;
    open.device = "cuda:0";
    open.nic = c.nic;
    open.config = c.config.data();
    open.config_count = (uint32_t)c.config.size();
    gic::error_text() = "";
    const int status = ncclgin_backend::check_keys(&open);
    std::string said = gic::error_text();
    if (status == 0)
        said = ncclgin_backend::type_name(ncclgin_backend::type_of(
            gic::Config(ncclgin_backend::keys, ncclgin_backend::key_count, &open), &open));
    if (status == c.status && said.find(c.text) != std::string::npos && said.find('\n') == std::string::npos)
        return;
    failures++;
    printf("nic=%s", c.nic);
    for (const gic_kv &kv : c.config)
        printf(" %s=%s", kv.key, kv.value);
    printf(": %d \"%s\", want %d with \"%s\"\n", status, said.c_str(), c.status, c.text);
}

} // namespace

int main() {
    const Case cases[] = {
        {"soft", {}, 0, "gdaki"},
        {"none", {}, 0, "lsa"},
        {"mlx5_0", {}, 0, "gdaki"},
        {"mlx5_0", {{"path", "proxy"}}, 0, "proxy"},
        {"soft", {{"path", "proxy"}, {"contexts", "4"}}, 0, "proxy"},
        {"soft", {{"contexts", "16"}, {"lanes", "32"}, {"syncwarp", "on"}, {"inline", "on"}}, 0, "gdaki"},
        {"soft", {{"completion", "counter"}, {"depth", "32768"}}, 0, "gdaki"},
        {"none", {{"lanes", "64"}, {"syncwarp", "on"}}, 0, "lsa"},
        {"soft", {{"fault", "withdraw"}}, 0, "gdaki"},
        // What a machine, a library or a build could give one day is a skipped row.
        {"none", {{"path", "gdaki"}}, -ENOTSUP, "path=gdaki needs a NIC"},
        {"none", {{"path", "proxy"}}, -ENOTSUP, "path=proxy needs a NIC"},
        {"soft", {{"path", "lsa"}}, -ENOTSUP, "path=lsa uses no NIC"},
        {"soft", {{"syncwarp", "on"}}, -ENOTSUP, "syncwarp=on: one lane"},
        {"soft", {{"path", "proxy"}, {"inline", "on"}}, -ENOTSUP, "wild pointer"},
        {"none", {{"inline", "on"}}, -ENOTSUP, "inline=on with path=lsa"},
        {"none", {{"completion", "counter"}}, -ENOTSUP, "completion=counter"},
        {"soft", {{"completion", "counter"}, {"lanes", "2"}}, -ENOTSUP, "completion=counter"},
        {"soft", {{"completion", "counter"}, {"inline", "on"}}, -ENOTSUP, "completion=counter"},
        {"none", {{"fault", "withdraw"}}, -ENOTSUP, "fault=withdraw"},
        {"mlx5_0", {{"fault", "withdraw"}}, -ENOTSUP, "fault=withdraw"},
        // What can never be is a wrong value.
        {"soft", {{"contexts", "0"}}, -EINVAL, "contexts=0"},
        {"soft", {{"contexts", "17"}}, -EINVAL, "contexts=17"},
        {"soft", {{"lanes", "3"}}, -EINVAL, "lanes=3"},
        {"soft", {{"depth", "1000"}}, -EINVAL, "depth=1000: want a power of two"},
        {"soft", {{"depth", "32"}}, -EINVAL, "depth=32"},
        {"soft", {{"path", "ibgda"}}, -EINVAL, "path=ibgda: want one of auto|gdaki|proxy|lsa"},
        {"soft", {{"no_such_key", "1"}}, -EINVAL, "no_such_key"},
    };
    for (const Case &c : cases)
        check(c);
    printf(failures ? "keys_test: %d failed\n" : "keys_test: ok\n", failures);
    return failures != 0;
}
