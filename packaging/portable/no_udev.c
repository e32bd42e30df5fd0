/* SPDX-License-Identifier: Apache-2.0
 *
 * Debian's libhwloc asks udev about disks; wideep asks hwloc about cores and caches alone. Without
 * udev (udev_new returns nothing) hwloc leaves the disks out; the other functions are not reached. */
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void* udev_new(void) { return NULL; }
HIDDEN void* udev_unref(void* udev) { return udev; }
HIDDEN void* udev_device_new_from_subsystem_sysname(void* udev, const char* subsystem,
                                                    const char* name) {
  (void)udev, (void)subsystem, (void)name;
  return NULL;
}
HIDDEN const char* udev_device_get_property_value(void* device, const char* key) {
  (void)device, (void)key;
  return NULL;
}
HIDDEN void* udev_device_unref(void* device) { return device; }
