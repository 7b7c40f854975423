package moe

// Model is a published shape that the model axis knows by name.
type Model struct {
	Name                  string
	Hidden, Experts, TopK int
}

// Models lists them.
func Models() []Model {
	list := make([]Model, len(models))
	for i, m := range models {
		list[i] = Model{m.name, m.hidden, m.experts, m.topk}
	}
	return list
}
