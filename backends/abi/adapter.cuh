// Session glue that every adapter of gic_backend needs: configuration lookup and validation, storage behind
// the arrays of facts and counters, and the call of one workload among those an adapter serves.
//
// Host side only. Functions return 0 or a negative errno and leave one line in gic::error_text().
#ifndef GIC_ABI_ADAPTER_CUH
#define GIC_ABI_ADAPTER_CUH

#include "driver.cuh"

#include <deque>

namespace gic {

// The symbol the harness looks up; everything else of a plugin stays hidden.
#define GIC_EXPORT extern "C" __attribute__((visibility("default")))

// Value of `key`, or nullptr.
inline const char *kv_find(const struct gic_kv *kv, uint32_t count, const char *key) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(kv[i].key, key) == 0)
            return kv[i].value;
    return nullptr;
}

// Decimal digits only, no sign or space.
inline bool parse_u64(const char *s, uint64_t *value_p) {
    if (*s < '0' || *s > '9')
        return false;
    char *end = nullptr;
    errno = 0;
    *value_p = strtoull(s, &end, 10);
    return *end == '\0' && errno == 0;
}

// Position of `value` in "a|b|c", -1 when it is none of them.
inline int index_in(const char *allowed, const char *value) {
    const size_t n = strlen(value);
    for (int i = 0;; i++) {
        const char *bar = strchr(allowed, '|');
        const size_t len = bar ? (size_t)(bar - allowed) : strlen(allowed);
        if (len == n && memcmp(allowed, value, n) == 0)
            return i;
        if (!bar)
            return -1;
        allowed = bar + 1;
    }
}

// The configuration of one open: defaults of `keys` overlaid with what was given, each value checked against
// its key's `allowed`. check() reports the first fault.
class Config {
  public:
    Config(const struct gic_key *keys, uint32_t key_count, const struct gic_open *open)
        : keys_(keys), key_count_(key_count), open_(open) {}

    int check() const {
        for (uint32_t i = 0; i < open_->config_count; i++)
            if (!key(open_->config[i].key))
                return fail(-EINVAL, "unknown key \"%s\"; known: %s", open_->config[i].key, names().c_str());
        for (uint32_t i = 0; i < key_count_; i++)
            if (int rc = check_one(keys_[i]))
                return rc;
        return 0;
    }
    // Both want a name that is in `keys`; values as check() let them pass.
    const char *text(const char *name) const {
        const char *v = kv_find(open_->config, open_->config_count, name);
        return v ? v : key(name)->value;
    }
    uint32_t u32(const char *name) const {
        uint64_t v = 0;
        parse_u64(text(name), &v);
        return (uint32_t)v;
    }
    // Position of the value in the key's "a|b|c".
    uint32_t choice(const char *name) const { return (uint32_t)index_in(key(name)->allowed, text(name)); }

  private:
    const struct gic_key *key(const char *name) const {
        for (uint32_t i = 0; i < key_count_; i++)
            if (strcmp(keys_[i].name, name) == 0)
                return &keys_[i];
        return nullptr;
    }
    std::string names() const {
        std::string s;
        for (uint32_t i = 0; i < key_count_; i++)
            s += (i ? ", " : "") + std::string(keys_[i].name);
        return s.empty() ? "none" : s;
    }
    int check_one(const struct gic_key &k) const {
        const char *v = text(k.name), *dots = strstr(k.allowed, "..");
        if (dots) {
            uint64_t lo = strtoull(k.allowed, nullptr, 10), hi = strtoull(dots + 2, nullptr, 10), n;
            if (!parse_u64(v, &n) || n < lo || n > hi)
                return fail(-EINVAL, "%s=%s: want an integer in %s", k.name, v, k.allowed);
        } else if (*k.allowed && index_in(k.allowed, v) < 0) {
            return fail(-EINVAL, "%s=%s: want one of %s", k.name, v, k.allowed);
        }
        return 0;
    }
    const struct gic_key *keys_;
    uint32_t key_count_;
    const struct gic_open *open_;
};

// key=value pairs with storage, as gic_backend.facts hands them out. Setting a key again replaces its value.
class Facts {
  public:
    void set(const char *key, std::string value) {
        for (Pair &p : pairs_)
            if (p.key == key) {
                p.value = std::move(value);
                return;
            }
        pairs_.push_back(Pair{key, std::move(value)});
    }
    void set(const char *key, uint64_t value) { set(key, std::to_string(value)); }
    void publish(const struct gic_kv **facts_p, uint32_t *count_p) {
        view_.clear();
        for (const Pair &p : pairs_)
            view_.push_back(gic_kv{p.key.c_str(), p.value.c_str()});
        *facts_p = view_.data();
        *count_p = (uint32_t)view_.size();
    }

  private:
    struct Pair {
        std::string key, value;
    };
    std::deque<Pair> pairs_;
    std::vector<struct gic_kv> view_;
};

// Counter values with storage; names are string literals.
class Counters {
  public:
    void clear() { list_.clear(); }
    void add(const char *name, const char *unit, uint64_t value, bool exact) {
        list_.push_back(gic_counter{name, unit, value, exact ? 1 : 0});
    }
    void publish(const struct gic_counter **counters_p, uint32_t *count_p) const {
        *counters_p = list_.data();
        *count_p = (uint32_t)list_.size();
    }

  private:
    std::vector<struct gic_counter> list_;
};

// The workloads an adapter serves: `gic::Workloads<op_workload, rate_workload>`. dispatch() calls
// f.template operator()<W>() for the one named; -ENOTSUP when there is none of that name.
template <class... W> struct Workloads {
    template <class F> static int dispatch(const char *name, F f) {
        int rc = -ENOTSUP;
        bool known = ((strcmp(W::name, name) == 0 && ((rc = f.template operator()<W>()), true)) || ...);
        if (known)
            return rc;
        std::string list;
        ((list += (list.empty() ? "" : ", ") + std::string(W::name)), ...);
        return fail(-ENOTSUP, "no device code for workload \"%s\"; built in: %s", name, list.c_str());
    }
};

// Runs an entry point of the ABI; no exception crosses it.
template <class F> int guarded(F f) {
    try {
        return f();
    } catch (const std::bad_alloc &) {
        return fail(-ENOMEM, "out of memory");
    } catch (const std::exception &e) {
        return fail(-EIO, "%s", e.what());
    }
}

} // namespace gic

#endif
