package check

// causes of the misses, by row. They are what the rows' conditions suggest, not measured.
var causes = map[string]string{
	"t9/miniproxy-tuned/warm/rtt": "one way is taken from mini-gda, whose WQE the NIC fetches; a host post copies a small WQE with the doorbell, and the paper has no row that tells what that saves",
	"fig3/break-even":             "0.1 us per 16 B is printed with one digit: 0.05 to 0.15 us would put the break-even anywhere between 80 and 217 B",
	"t15/gpu/1984":                "the onset was fitted with 128 PEs, the row is of 32 PEs: its decline begins later and is steeper",
}
