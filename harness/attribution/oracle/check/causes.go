package check

// causes of the misses, by row. They are what the rows' conditions suggest, not measured.
var causes = map[string]string{
	"P-IB, Tables 9-11, miniproxy cpu=warm handoff=tuned, rtt": "one way is taken from mini-gda, whose WQE the NIC fetches; a host post copies a small WQE with the doorbell, and the paper has no row that tells what that saves",
	"P-IB, Fig. 3, minigda inline=on, break_even_bytes":        "0.1 us per 16 B is printed with one digit: 0.05 to 0.15 us would put the break-even anywhere between 80 and 217 B",
}
