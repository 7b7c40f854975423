// Configuration glue of the adapters: which values pass, and what a refusal says.
#include "backends/abi/adapter.cuh"

namespace {

int failures;
#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                                       \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)

const gic_key keys[] = {
    {"n", "4", "1..256", ""}, {"mode", "bb", "a|bb|bbb", ""}, {"free", "", "", ""}, {"one", "x", "x", ""}};

int check(std::vector<gic_kv> given) {
    gic_open open{};
    open.config = given.data();
    open.config_count = (uint32_t)given.size();
    return gic::Config(keys, 4, &open).check();
}

void check_values() {
    const struct {
        const char *key, *value;
        bool good;
    } cases[] = {
        {"n", "1", true},        {"n", "256", true},
        {"n", "0", false},       {"n", "257", false},
        {"n", "", false},        {"n", "-1", false},
        {"n", " 1", false},      {"n", "1 ", false},
        {"n", "+1", false},      {"n", "0x10", false},
        {"n", "1..2", false},    {"n", "99999999999999999999", false},
        {"mode", "a", true},     {"mode", "bb", true},
        {"mode", "bbb", true},   {"mode", "b", false},
        {"mode", "", false},     {"mode", "a|bb", false},
        {"mode", "|", false},    {"mode", "a|bb|bbb", false},
        {"mode", "bbbb", false}, {"mode", "A", false},
        {"one", "x", true},      {"one", "y", false},
        {"one", "", false},      {"free", "a|b", true},
        {"free", "", true},      {"other", "1", false},
    };
    for (const auto &c : cases) {
        const int rc = check({{c.key, c.value}});
        CHECK(rc == (c.good ? 0 : -EINVAL), "%s=%s: %d", c.key, c.value, rc);
        if (!c.good) {
            const std::string &text = gic::error_text();
            CHECK(text.find(c.key) != std::string::npos && text.find('\n') == std::string::npos, "\"%s\"",
                  text.c_str());
        }
    }
    CHECK(check({}) == 0, "defaults");
}

void check_lookup() {
    const gic_kv given[] = {{"mode", "bbb"}, {"n", "17"}};
    gic_open open{};
    open.config = given;
    open.config_count = 2;
    const gic::Config c(keys, 4, &open);
    CHECK(c.choice("mode") == 2 && c.u32("n") == 17 && strcmp(c.text("one"), "x") == 0, "given and default");
}

// The status that tells most wins, and every agent runs.
void check_launch() {
    uint32_t ran = 0;
    const int rc = gic::launch_host(5, 1, [&](gic::Self self) {
        __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
        return self.agent == 1   ? (int)gic::ERR_TIMEOUT
               : self.agent == 3 ? (int)gic::ERR_IO
               : self.agent == 4 ? (int)gic::ERR_CANCELED
                                 : (int)gic::OK;
    });
    CHECK(rc == gic::ERR_IO && ran == 5, "status %d of %u agents", rc, ran);
    CHECK(gic::error_text() == "device thread 3: error CQE", "\"%s\"", gic::error_text().c_str());
}

void check_storage() {
    gic::Facts facts;
    facts.set("a", 1);
    facts.set("b", "x");
    facts.set("a", 2);
    const gic_kv *kv;
    uint32_t n;
    facts.publish(&kv, &n);
    CHECK(n == 2 && strcmp(gic::kv_find(kv, n, "a"), "2") == 0 && !gic::kv_find(kv, n, "c"), "facts");
    CHECK(gic::guarded([]() -> int { throw std::bad_alloc(); }) == -ENOMEM, "no exception crosses the ABI");
}

} // namespace

int main() {
    check_values();
    check_lookup();
    check_launch();
    check_storage();
    return failures != 0;
}
