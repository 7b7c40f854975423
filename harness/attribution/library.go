package attribution

// Library is what is documented of a library: which records are its rows, which floor stands beside it, and its
// choices in the floor's keys, each with its source. One file per library in libraries/.
type Library struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
}
