// Package guarded tests the guards of package fence on real databases, whose clients the root
// module must not require. It also tests the locks of pglock in transactions of lib/pq, which
// pglock must not require. It contains only tests.
package guarded
