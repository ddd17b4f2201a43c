package child

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// A job is a job object: a program, and all processes that it starts, and that these start. A
// process can't leave it.
type job windows.Handle

// killedCode is the exit code of programs that the job kills: what a shell of Unix shows for a
// program that KILL has ended.
const killedCode = 128 + 9

// newJob returns a job without processes. The system kills all its processes when the last handle
// of the job is closed, and the only handle is ours: however we end, they end, too.
func newJob() (job, error) {
	handle, err := windows.CreateJobObject(nil, nil) // no child inherits this handle
	if err != nil {
		return 0, err
	}
	j := job(handle)
	if err := j.limit(windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
		j.close()
		return 0, err
	}
	return j, nil
}

// limit sets the limits of the job.
func (j job) limit(flags uint32) error {
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: flags},
	}
	_, err := windows.SetInformationJobObject(windows.Handle(j), windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	return err
}

// add puts a process that has started nothing yet into the job.
func (j job) add(process windows.Handle) error {
	return windows.AssignProcessToJobObject(windows.Handle(j), process)
}

// kill kills all processes of the job. It does not wait for their end.
func (j job) kill() error { return windows.TerminateJobObject(windows.Handle(j), killedCode) }

// spare lets the processes of the job outlive us.
func (j job) spare() error { return j.limit(0) }

// active returns how many processes of the job live.
func (j job) active() (int, error) {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, which package windows does not have.
	var info struct {
		userTime, kernelTime, periodUserTime, periodKernelTime int64
		pageFaults, total, active, terminated                  uint32
	}
	err := windows.QueryInformationJobObject(windows.Handle(j), windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return int(info.active), err
}

// close closes our handle of the job.
func (j job) close() {
	_ = windows.CloseHandle(windows.Handle(j)) // it fails only for a handle that is none
}
