#include "server/core/scheduling.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace posenc::server {

// The kernel's struct sched_attr, whose headers differ between systems (sched_setattr(2)).
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // of a thread with the usual policy: its slice; 0 for the kernel's choice, milliseconds
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

void AskForShortSlices() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.runtime_ns = 200'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace posenc::server
