package paper

// words makes a map of pairs.
func words(kv ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

const (
	us   = 1e-6
	mmsg = 1e6
	gbs  = 1e9
)

// textFigures are typed from the text, not from the csv files.
func textFigures() []figure {
	var out []figure
	add := func(platform, table, workload string, axes, config map[string]string, backend, metric string, value float64) {
		out = append(out, figure{platform, table, workload, axes, config, backend, metric, value})
	}
	op := words("op", "put", "size", "8")
	latency := "text, latency"
	add("P-IB", latency, "op", op, nil, "minigda", "doorbell_to_cqe", 3.30*us)
	add("P-IB", latency, "effect", op, words("inline", "on"), "minigda", "put_completion_saved", 0.61*us)
	add("P-IB", latency, "effect", op, words("transport", "dc"), "minigda", "put_completion_added", 0.45*us)
	add("P-IB", latency, "effect", op, words("path", "ibgda", "order", "gpu-release"), "nvshmem", "issue_saved", 0.16*us)
	add("P-GB200", latency, "effect", op, words("queue", "host"), "minigda", "put_completion_saved", 0.86*us)
	add("P-IB", "Fig. 3", "effect", nil, words("inline", "on"), "minigda", "issue_per_16_bytes", 0.1*us)
	add("P-IB", "Fig. 3", "effect", nil, words("inline", "on"), "minigda", "break_even_bytes", 92)
	add("P-IB", "text, method", "timer_check", words("responder_delay", "50000"), nil, "minigda", "rtt_shift_low", 49.6*us)
	add("P-IB", "text, method", "timer_check", words("responder_delay", "50000"), nil, "minigda", "rtt_shift_high", 50.3*us)
	forwarded := words("doorbell", "host-thread")
	add("P-IB", "text, rate", "effect", op, forwarded, "minigda", "put_completion_added_low", 2.6*us)
	add("P-IB", "text, rate", "effect", op, forwarded, "minigda", "put_completion_added_high", 5.8*us)
	add("P-IB", "text, rate", "rate", nil, words("doorbell", "host-thread", "qps", "16"), "minigda", "message_rate", 258*mmsg)
	add("P-H100", "text, rate", "rate", nil, words("doorbell", "host-thread", "qps", "16"), "minigda", "message_rate", 257*mmsg)
	for _, r := range []struct {
		qps, dci         string
		public, internal float64
	}{{"2", "1", 13.86, 12.19}, {"16", "1", 22.98, 21.28}, {"2", "0", 94.88, 92.86}} {
		add("P-GB200", "Table 8", "op", op, words("qps", r.qps, "dci", r.dci, "api", "public"), "nvshmem", "put_completion", r.public*us)
		add("P-GB200", "Table 8", "op", op, words("qps", r.qps, "dci", r.dci, "api", "internal"), "nvshmem", "put_completion", r.internal*us)
	}
	out = append(out, loadedFigures()...)
	out = append(out, payloadFigures()...)
	out = append(out, callerFigures()...)
	return append(out, connectionFigures()...)
}

// loadedFigures are round trips beside other traffic, and the proxy rates on P-GB200.
func loadedFigures() []figure {
	var out []figure
	add := func(platform string, axes, config map[string]string, backend, metric string, value float64) {
		out = append(out, figure{platform, "text, loaded round trips", "loaded", axes, config, backend, metric, value})
	}
	cta := words("background", "64", "paced", "no")
	for _, r := range []struct {
		platform, backend, key, apart string
		shared, reserved              float64
	}{
		{"P-IB", "ncclgin", "sharing", "reserved", 27.3, 13.9}, {"P-IB", "miniproxy", "ring_mode", "private", 2190, 115},
		{"P-GB200", "miniproxy", "ring_mode", "private", 1401, 178}, {"P-IB", "uccl-ep", "sharing", "reserved", 7570, 120},
		{"P-IB", "mscclpp", "sharing", "reserved", 50800, 825},
	} {
		add(r.platform, cta, words(r.key, "shared"), r.backend, "rtt", r.shared*us)
		add(r.platform, cta, words(r.key, r.apart), r.backend, "rtt", r.reserved*us)
	}
	paced := words("background", "64", "paced", "30M")
	add("P-IB", paced, words("path", "gdaki", "sharing", "reserved"), "ncclgin", "rtt", 12.9*us)
	add("P-IB", paced, nil, "ncclgin", "carried_rate", 30*mmsg)
	add("P-IB", paced, words("ring_mode", "private"), "miniproxy", "rtt", 29.2*us)
	add("P-IB", paced, nil, "miniproxy", "carried_rate", 30*mmsg)
	every := words("background", "all", "paced", "no")
	add("P-IB", every, words("sharing", "shared"), "ncclgin", "rtt", 362*us)
	add("P-IB", every, words("sharing", "shared"), "ncclgin", "carried_rate", 2.6*mmsg)
	add("P-IB", every, words("sharing", "reserved"), "ncclgin", "rtt_low", 12*us)
	add("P-IB", every, words("sharing", "reserved"), "ncclgin", "rtt_high", 16*us)
	add("P-IB", every, words("sharing", "reserved"), "ncclgin", "carried_rate_low", 73*mmsg)
	add("P-IB", every, words("sharing", "reserved"), "ncclgin", "carried_rate_high", 79*mmsg)
	add("P-IB", words("background", "1"), words("path", "ibrc"), "nvshmem", "rtt_factor", 670)
	load := words("background", "load")
	add("P-IB", load, words("batch", "16"), "miniproxy", "rtt", 272*us)
	add("P-IB", load, words("batch", "1"), "miniproxy", "rtt", 255*us)
	add("P-IB", load, words("batch", "16"), "miniproxy", "carried_factor", 5.2)
	out = append(out,
		figure{"P-GB200", "text, proxies", "rate", nil, words("workers", "8", "batch", "16"), "miniproxy", "message_rate", 140 * mmsg},
		figure{"P-GB200", "text, proxies", "rate", nil, words("path", "ibgda"), "nvshmem", "message_rate", 156 * mmsg})
	return out
}

// payloadFigures are the knees, Table 12 and Table 13.
func payloadFigures() []figure {
	out := []figure{{"P-IB", "text, payload", "goodput", nil, nil, "minigda", "goodput_peak", 24.8 * gbs}}
	for _, r := range []struct {
		backend, path, cpu string
		knee               float64
	}{
		{"nvshmem", "ibgda", "", 512}, {"minigda", "", "", 512}, {"ncclgin", "gdaki", "", 2048}, {"miniproxy", "", "", 2048}, {"uccl-ep", "", "", 2048},
		{"mscclpp", "", "", 7168}, {"ncclgin", "proxy", "", 7168}, {"fabric-lib", "", "", 7168}, {"nvshmem", "ibrc", "warm", 7168}, {"nvshmem", "ibrc", "cold", 32768},
	} {
		out = append(out, figure{"P-IB", "text, payload", "goodput", words("cpu", r.cpu), words("path", r.path), r.backend, "knee_bytes", r.knee})
	}
	for _, r := range []struct {
		backend, path string
		k4, k64       float64
	}{{"miniproxy", "", 49.1, 49.0}, {"nvshmem", "ibgda", 49.3, 49.5}, {"ncclgin", "proxy", 47.9, 48.5}, {"ncclgin", "gdaki", 21.3, 48.0}} {
		out = append(out, figure{"P-GB200", "Table 12", "goodput", words("size", "4K"), words("path", r.path), r.backend, "goodput", r.k4 * gbs},
			figure{"P-GB200", "Table 12", "goodput", words("size", "64K"), words("path", r.path), r.backend, "goodput", r.k64 * gbs})
	}
	for threads, v := range map[string]float64{"1": 12.0, "8": 39.5, "32": 34.3, "64": 27.2} {
		out = append(out, figure{"P-IB", "Table 13", "rate", words("threads", threads), words("contexts", "16", "syncwarp", ""), "ncclgin", "message_rate", v * mmsg})
	}
	out = append(out,
		figure{"P-IB", "Table 13", "rate", words("threads", "32"), words("syncwarp", "on"), "ncclgin", "message_rate_low", 106 * mmsg},
		figure{"P-IB", "Table 13", "rate", words("threads", "32"), words("syncwarp", "on"), "ncclgin", "message_rate_high", 110 * mmsg},
		figure{"P-IB", "Table 13", "rate", nil, words("qps", "2"), "nvshmem", "message_rate", 50.2 * mmsg},
		figure{"P-IB", "Table 13", "rate", nil, words("qps", "16"), "nvshmem", "message_rate", 251.5 * mmsg},
		figure{"P-IB", "Table 13", "rate", words("threads", "4096"), words("qps", "16"), "minigda", "message_rate", 260 * mmsg},
		figure{"P-GB200", "Table 13", "rate", words("warmup", "100"), words("syncwarp", "off"), "ncclgin", "message_rate", 67.10 * mmsg},
		figure{"P-GB200", "Table 13", "rate", words("warmup", "1000"), words("syncwarp", "off"), "ncclgin", "message_rate", 16.61 * mmsg},
		figure{"P-GB200", "Table 13", "rate", words("warmup", "100"), words("syncwarp", "on"), "ncclgin", "message_rate", 82.20 * mmsg},
		figure{"P-GB200", "Table 13", "rate", words("warmup", "1000"), words("syncwarp", "on"), "ncclgin", "message_rate", 82.12 * mmsg})
	return out
}

// callerFigures are Table 14, Fig. 9 and DeepEP's own.
func callerFigures() []figure {
	var out []figure
	for _, r := range []struct {
		backend, build           string
		absent, dormant, waiting float64
	}{{"minigda", "", 29, 32, 1.9}, {"miniproxy", "", 29, 34, 26.8}, {"nvshmem", "separate", 34, 44, 22.3}, {"nvshmem", "inlined", 34, 98, 18.8}, {"ncclgin", "", 29, 95, 5.3}} {
		config := words("build", r.build)
		out = append(out, figure{"P-IB", "Table 14", "caller", nil, config, r.backend, "registers_absent", r.absent},
			figure{"P-IB", "Table 14", "caller", nil, config, r.backend, "registers_dormant", r.dormant},
			figure{"P-IB", "Table 14", "caller", nil, config, r.backend, "waiting_loss", r.waiting / 100})
	}
	dormant := func(backend, build, work, metric string, percent float64) {
		out = append(out, figure{"P-IB", "Fig. 9", "caller_dormant", words("work", work), words("build", build), backend, metric, percent / 100})
	}
	for backend, build := range map[string]string{"nvshmem": "inlined", "ncclgin": ""} {
		dormant(backend, build, "compute", "dormant_loss_low", 11)
		dormant(backend, build, "compute", "dormant_loss_high", 15)
	}
	dormant("nvshmem", "inlined", "stream", "dormant_loss", 37)
	dormant("nvshmem", "separate", "stream", "dormant_loss", 37)
	dormant("ncclgin", "", "stream", "dormant_loss", 37)
	dormant("minigda", "", "stream", "dormant_loss", 27)
	for qps, percent := range map[string]float64{"16": 7, "64": 20, "528": 64} {
		out = append(out, figure{"P-IB", "Fig. 9", "caller_qps", nil, words("qps", qps), "nvshmem", "waiting_loss", percent / 100})
	}
	for metric, v := range map[string]float64{"dispatch_issued": 25e-6, "dispatch": 0.49e-3, "combine_issued": 24e-6, "combine_grid_sync": 0.93e-3} {
		out = append(out, figure{"P-IB", "text, caller", "moe", words("tokens", "128", "experts", "288"), nil, "deepep", metric, v})
	}
	return out
}

// connectionFigures are Fig. 10 with Tables 15 and 16.
func connectionFigures() []figure {
	var out []figure
	add := func(axes, config map[string]string, backend, metric string, value float64) {
		out = append(out, figure{"P-H100", "Fig. 10, Tables 15, 16", "connections", axes, config, backend, metric, value})
	}
	add(words("role", "send", "active", "32768"), nil, "minigda", "message_rate", 242*mmsg)
	add(words("role", "both", "active", "few"), nil, "minigda", "message_rate", 152*mmsg)
	add(words("role", "both", "active", "32768"), nil, "minigda", "message_rate", 74*mmsg)
	add(words("role", "both", "active", "32768"), nil, "minigda", "rate_loss", 0.51)
	add(words("role", "receive"), nil, "minigda", "onset_factor", 10)
	add(words("burst", "8192"), nil, "minigda", "message_rate_low", 139*mmsg)
	add(words("burst", "8192"), nil, "minigda", "message_rate_high", 143*mmsg)
	add(words("pattern", "alltoall"), nil, "minigda", "onset_active", 1350)
	add(words("pattern", "alltoall", "active", "3000"), nil, "minigda", "rate_loss", 0.59)
	add(words("active", "1984", "burst", "256"), words("transport", "dc"), "minigda", "rate_kept", 0.95)
	add(words("active", "2976", "burst", "256"), words("transport", "dc"), "minigda", "rate_kept", 0.23)
	add(words("active", "2976", "burst", "256"), words("transport", "rc", "queue", ""), "minigda", "rate_kept", 0.56)
	add(words("burst", "1"), words("transport", "dc"), "minigda", "slowdown_factor", 60)
	for _, r := range []struct {
		active    string
		host, gpu float64
	}{{"1984", 0.50, 0.82}, {"2976", 0.29, 0.41}} {
		add(words("active", r.active), words("transport", "rc", "queue", "host"), "minigda", "rate_kept", r.host)
		add(words("active", r.active), words("transport", "rc", "queue", "gpu"), "minigda", "rate_kept", r.gpu)
	}
	add(words("active", "1024"), nil, "verbs", "rate_kept_low", 0.60)
	add(words("active", "1024"), nil, "verbs", "rate_kept_high", 0.75)
	add(words("active", "2048"), nil, "verbs", "rate_kept_high", 0.10)
	add(words("role", "send", "active", "7168"), nil, "verbs", "flat_active", 7168)
	add(nil, nil, "minigda", "packets_per_message_low", 1.01)
	add(nil, nil, "minigda", "packets_per_message_high", 1.09)
	for _, r := range []struct {
		size       string
		send, both float64
	}{{"8", 1.94, 0.59}, {"128", 18.12, 9.90}, {"256", 21.00, 20.65}, {"4096", 24.68, 24.35}} {
		add(words("size", r.size, "role", "send", "active", "4096"), nil, "minigda", "goodput", r.send*gbs)
		add(words("size", r.size, "role", "both", "active", "4096"), nil, "minigda", "goodput", r.both*gbs)
	}
	return out
}
