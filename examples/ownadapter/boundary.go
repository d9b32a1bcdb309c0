package ownadapter

import "github.com/onceline/onceline/broker/boundary"

// Boundary is where the guarantees of a folder end.
func Boundary() boundary.Boundary {
	return boundary.Boundary{Broker: "spool", Of: "a folder on one machine"}
}
