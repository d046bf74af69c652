// Package functions has the declared functions: their policies with what these have learned, their counters, and the table in
// which queries find functions and models.
//
// [Functions.Publish] is called by package versions whenever names change their meaning. It makes a new table of everything that
// can be asked for by name, puts it in place (queries read it without a lock) and tells the scheduler's epoch what there is to
// plan for (topology.go): functions with their candidates, models with their costs, devices, and shadows and traffic rules as
// functions of their own.
//
// What a function counts and has learned outlives changes of its declaration. Its sub-queues at the versions' lanes are removed
// once no table has them.
//
// # Locks
//
// Functions have a lock of their own. Where a method takes a *versions.State, the catalog's lock is held already: it is always
// taken first.
//
// # What it never does
//
// It judges no declaration: package declarations does, before it calls Put. It is not on the query path.
package functions
