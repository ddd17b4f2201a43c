package fence_test

import (
	"fmt"

	"github.com/sniblock/snib/fence"
)

// Guard an UPDATE of your own by two columns of its row. Its arguments are the status, then token
// and owner of the hold's Mark, then token, token and owner again, and the key.
func ExampleColumns_Clauses() {
	guard := fence.Columns{Dialect: fence.Postgres, Table: "orders", Key: "id"}
	set, where, err := guard.Clauses(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("UPDATE orders SET status = $1, " + set)
	fmt.Println("WHERE " + where + " AND id = $7")
	// Output:
	// UPDATE orders SET status = $1, fence = $2, fence_owner = $3
	// WHERE (fence < $4 OR fence = $5 AND fence_owner = $6) AND id = $7
}
