// Package classify finds the largest elements of a tensor, which protocols call its classes: the index of an element is the class, its value the score.
//
// It serves dialects whose clients ask for the first k classes of an output. Data must have whole elements; a type that has no order, or no fixed size,
// has no classes. It never allocates in proportion to k, and knows no labels and no protocol but for the form value:index, which several share.
package classify
