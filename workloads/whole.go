package workloads

import "gic/backends"

// Whole is a Job that some libraries carry out with whole operations of their own in place of the device half: the
// same bytes, routing and reference, with a run, a message list and metrics of its own.
type Whole interface {
	// WholeCaps are the capabilities that a backend needs for it, in place of Needs.
	WholeCaps() backends.Caps
	// Whole gives the job in that form.
	Whole() Job
}

// For gives the form in which a backend of these capabilities carries out a job.
func For(j Job, caps backends.Caps) Job {
	if w, ok := j.(Whole); ok && w.WholeCaps()&^caps == 0 {
		return w.Whole()
	}
	return j
}

// WholeCaps are those of a job that has such a form, 0 of one that has none.
func WholeCaps(j Job) backends.Caps {
	if w, ok := j.(Whole); ok {
		return w.WholeCaps()
	}
	return 0
}
