// Package planner makes the epoch's plan: from who asks, who answers and what is known of them, which models each function
// evaluates, which replicas serve whom, how batches are executed and what is refused. It is a pure function of its Input.
package planner
