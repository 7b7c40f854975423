/* A backend that moves nothing: each call tells what it was given, so that the loader's every path can be
 * checked from the other side. BAD_* makes one thing wrong with it. */
#include "backends/abi/backend.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __thread char error_text[256];

struct gic_session {
    pthread_t thread;
    struct gic_comm comm;
    const volatile uint32_t *stop;
    uint64_t timeout_ns;
    int rank, nranks;
    unsigned char *window;
    uint64_t bytes;
    double *values;
    struct gic_series series[3];
    struct gic_counter counters[2];
    struct gic_kv facts[4];
    char *text[4];
};

static int fail(int status, const char *text) {
    snprintf(error_text, sizeof error_text, "%s", text);
    return status;
}

static const char *find(const struct gic_kv *kv, uint32_t n, const char *key) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(kv[i].key, key) == 0)
            return kv[i].value;
    return "";
}

static int same_thread(struct gic_session *s) {
    return pthread_equal(s->thread, pthread_self()) ? 0 : fail(-EPROTO, "called from another thread");
}

static int mock_probe(const struct gic_open *o) {
    const char *want = find(o->config, o->config_count, "probe");
    if (o->struct_size != sizeof *o || o->comm != NULL)
        return fail(-EPROTO, "probe got another struct, or a comm");
    if (strcmp(want, "absent") == 0)
        return fail(-ENOTSUP, "no mock device: plug one in");
    if (strcmp(want, "senseless") == 0)
        return fail(-EINVAL, "probe=senseless makes no sense");
    return 0;
}

static int mock_open(const struct gic_open *o, struct gic_session **session_p) {
    const char *want = find(o->config, o->config_count, "open");
    if (strcmp(want, "fail") == 0)
        return fail(-EINVAL, "open=fail is not 3");
    if (strcmp(want, "silent") == 0) {
        error_text[0] = '\0';
        return -ENOMEM;
    }
    if (strcmp(want, "nothing") == 0)
        return 0;
    if (strcmp(want, "positive") == 0)
        return 7;
    struct gic_session *s = calloc(1, sizeof *s);
    s->thread = pthread_self();
    s->comm = *o->comm;
    s->stop = o->stop;
    s->timeout_ns = o->timeout_ns;
    s->rank = o->rank;
    s->nranks = o->nranks;
    int32_t mine = 100 + o->rank, *all = calloc((size_t)o->nranks, sizeof *all);
    int rc = s->comm.allgather(s->comm.arg, &mine, all, sizeof mine);
    for (int i = 0; rc == 0 && i < o->nranks; i++)
        if (all[i] != 100 + i)
            rc = -EBADMSG;
    free(all);
    if (rc == 0)
        rc = s->comm.barrier(s->comm.arg);
    if (rc != 0) {
        free(s);
        return fail(rc, "exchange with the peers");
    }
    asprintf(&s->text[0], "%s/%s/%s", o->job, o->device, o->nic);
    asprintf(&s->text[1], "%s", find(o->nic_config, o->nic_config_count, "engine"));
    asprintf(&s->text[2], "%u+%u", o->config_count, o->nic_config_count);
    *session_p = s;
    return 0;
}

static void mock_close(struct gic_session *s) {
    for (int i = 0; i < 4; i++)
        free(s->text[i]);
    free(s->values);
    free(s->window);
    free(s);
}

static int mock_window(struct gic_session *s, uint64_t bytes) {
    free(s->window);
    s->window = calloc(1, bytes);
    s->bytes = bytes;
    return same_thread(s);
}

static int in_window(struct gic_session *s, uint64_t offset, size_t bytes) {
    if (offset > s->bytes || bytes > s->bytes - offset)
        return fail(-ERANGE, "outside the window");
    return same_thread(s);
}

static int mock_write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    int rc = in_window(s, offset, bytes);
    if (rc == 0 && bytes)
        memcpy(s->window + offset, src, bytes);
    return rc;
}

static int mock_read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    int rc = in_window(s, offset, bytes);
    if (rc == 0 && bytes)
        memcpy(dst, s->window + offset, bytes);
    return rc;
}

static uint64_t now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int spin(struct gic_session *s) {
    uint64_t start = now();
    while (!*s->stop) {
        if (now() - start > s->timeout_ns)
            return fail(-ETIMEDOUT, "waited for nothing");
        sched_yield();
    }
    return fail(-ECANCELED, "stopped by the harness");
}

/* "echo": the number of inputs, then blob sizes and byte sums; "count": that many values. */
static int mock_run(struct gic_session *s, const struct gic_run *r, struct gic_result *out) {
    if (r->struct_size != sizeof *r)
        return fail(-EPROTO, "run got another struct");
    if (same_thread(s))
        return -EPROTO;
    if (strcmp(r->workload, "spin") == 0)
        return spin(s);
    if (strcmp(r->workload, "status") == 0)
        return fail(-atoi(find(r->args, r->arg_count, "errno")), "as asked");
    if (strcmp(r->workload, "barrier") == 0) {
        int rc = s->comm.barrier(s->comm.arg);
        return rc ? fail(rc, "barrier") : 0;
    }
    if (strcmp(r->workload, "crooked") == 0) {
        s->series[0] = (struct gic_series){"x", NULL, NULL, 0};
        *out = (struct gic_result){s->series, 1};
        return 0;
    }
    size_t n = strcmp(r->workload, "count") == 0 ? (size_t)atol(find(r->args, r->arg_count, "n"))
                                                 : 2 * (size_t)r->blob_count;
    free(s->values);
    s->values = calloc(n ? n : 1, sizeof *s->values);
    for (size_t i = 0; i < n; i++)
        s->values[i] = (double)i;
    if (strcmp(r->workload, "echo") == 0)
        for (uint32_t b = 0; b < r->blob_count; b++) {
            s->values[2 * b] = (double)r->blobs[b].bytes;
            s->values[2 * b + 1] = 0;
            for (size_t i = 0; i < r->blobs[b].bytes; i++)
                s->values[2 * b + 1] += ((const unsigned char *)r->blobs[b].data)[i];
        }
    s->series[0] = (struct gic_series){"values", "ns", s->values, n};
    s->series[1] = (struct gic_series){r->blob_count ? r->blobs[0].name : "none", "1", NULL, 0};
    *out = (struct gic_result){s->series, 2};
    /* The name above belongs to the caller: replace it by our own copy before returning. */
    free(s->text[3]);
    s->text[3] = strdup(s->series[1].name);
    s->series[1].name = s->text[3];
    return 0;
}

static int mock_counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    s->counters[0] = (struct gic_counter){"wqes", "1", s->counters[0].value + 3, 1};
    s->counters[1] = (struct gic_counter){"doorbells", "1", UINT64_MAX, 0};
    *counters_p = s->counters;
    *count_p = 2;
    return same_thread(s);
}

static int mock_facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    s->facts[0] = (struct gic_kv){"where", s->text[0]};
    s->facts[1] = (struct gic_kv){"engine", s->text[1]};
    s->facts[2] = (struct gic_kv){"counts", s->text[2]};
    *facts_p = s->facts;
    *count_p = 3;
    return same_thread(s);
}

static const char *mock_last_error(void) { return error_text; }

static const struct gic_key mock_keys[] = {
    {"probe", "", "", "what probe answers"},
#ifdef BAD_KEY
    {"probe", "", "", "again"},
#else
    {"open", "ok", "ok|fail|silent|nothing|positive", "what open answers"},
#endif
};

#ifdef BAD_SYMBOL
#define SYMBOL gic_backend_v0
#else
#define SYMBOL gic_backend_v1
#endif
extern __attribute__((visibility("default"))) const struct gic_backend SYMBOL;
const struct gic_backend SYMBOL = {
#ifdef BAD_NAME
    .name = "",
#else
    .name = "mock",
#endif
    .version = "1.2",
#ifdef BAD_SIZE
    .struct_size = sizeof(struct gic_backend) - 8,
#else
    .struct_size = sizeof(struct gic_backend),
#endif
#if defined(BAD_STRUCTS)
    .abi = GIC_ABI_VERSION + (1u << 16),
#elif defined(BAD_TABLES)
    .abi = GIC_ABI_VERSION + 1,
#elif defined(BAD_OLD) /* before the tables had a version */
    .abi = 1,
#else
    .abi = GIC_ABI_VERSION,
#endif
    .caps = GIC_CAP_PUT | GIC_CAP_NOTIFY | GIC_CAP_HOST_DEVICE | GIC_CAP_NIC_NONE,
    .keys = mock_keys,
    .key_count = 2,
    .lowering = {[GIC_OP_PUT] = {1, 2, 3}, [GIC_OP_NOTIFY] = {4, 5, 6}},
    .probe = mock_probe,
    .open = mock_open,
    .close = mock_close,
    .window = mock_window,
    .write = mock_write,
    .read = mock_read,
#ifndef BAD_FUNCTION
    .run = mock_run,
#endif
    .counters = mock_counters,
    .facts = mock_facts,
    .last_error = mock_last_error,
};
