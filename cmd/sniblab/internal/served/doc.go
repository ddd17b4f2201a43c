// Package served tests the lock service and its driver together, on real stores: with replicas
// that are killed, and over networks that cut, delay and lose what is sent.
package served
