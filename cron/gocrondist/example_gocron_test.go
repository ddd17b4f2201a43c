package gocrondist_test

import (
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron/gocrondist"
	"github.com/sniblock/snib/memlock"
)

// Each host runs this program. At each full minute one of them writes the
// report; here it is written at once.
func ExampleNewLocker() {
	snibLocker, err := snib.New(memlock.New(), snib.Prefix("jobs/")) // in production a store that all hosts reach
	if err != nil {
		fmt.Println(err)
		return
	}
	defer snibLocker.Close()
	locker, err := gocrondist.NewLocker(snibLocker, 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	written := make(chan string)
	_, err = scheduler.NewJob(
		gocron.CronJob("* * * * *", false),
		gocron.NewTask(func() { written <- "the report is written" }),
		gocron.WithName("report"), // the lock's name
		gocron.WithStartAt(gocron.WithStartImmediately()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	fmt.Println(<-written)
	fmt.Println(scheduler.Shutdown())
	// Output:
	// the report is written
	// <nil>
}
