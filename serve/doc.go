// Package serve is a lock service over HTTP, for any store whose leases outlive the process that
// took them: memory, SQLite, Redis, Redlock, rows of PostgreSQL and of MariaDB.
//
// A [Service] is an [http.Handler]. It keeps no locks itself: they are in the store, so each of
// several replicas on one store renews and releases the holds that another one granted. A replica
// keeps the places of the clients that wait through it. Of those that wait for one name, the first
// waits in the store, and the others in the replica, in the order of their arrival.
//
// The messages are in package remotelock/wire, and docs/serve.md explains them. Package remotelock
// is a driver for the service.
package serve
