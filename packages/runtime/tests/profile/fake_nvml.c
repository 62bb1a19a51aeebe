/* A libnvidia-ml.so.1 that plays a script. TRIMTAB_FAKE_NVML names the file; one statement a line, # begins a comment:
 *
 *   gpus N                     how many GPUs there are
 *   init CODE                  what nvmlInit_v2 answers
 *   set GPU KEY VALUE          a value from the start: util membusy total used clock reasons power energy
 *                              sm occ tensor dram pcie_rx pcie_tx (GPM: percent, MiB/s) limit gpm mig pcie_counter nvlink
 *   at TICK GPU KEY VALUE      the same from a tick on
 *   fail TICK GPU CALL CODE    a call answers CODE from a tick on (CALL * is all calls of that GPU)
 *   heal TICK GPU CALL         it answers again
 *   slow TICK GPU CALL MS      a call sleeps once at that tick
 *   process GPU PID MIB        a process on a GPU
 *
 * Ticks count with fake_tick(), which the test calls: nothing depends on the clock. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 16
#define EVENTS 200000
#define CALLS 24
#define EXPORT __attribute__((visibility("default")))

enum { ALL, C_utilization, C_memory, C_clock, C_reasons, C_power, C_fields, C_gpm, C_name, C_uuid, C_handle, C_processes,
       C_pcie, C_mig, C_energy, C_nvlink, C_power_instant };
enum { UTIL, MEMBUSY, TOTAL, USED, CLOCKV, REASONSV, POWERV, ENERGY, SM, OCC, TENSOR, DRAM, PRX, PTX, LIMIT, GPMV, MIGV,
       PCOUNT, NVLINK, KEYS };
static const char *keys[KEYS] = {"util", "membusy", "total", "used", "clock", "reasons", "power", "energy", "sm", "occ",
  "tensor", "dram", "pcie_rx", "pcie_tx", "limit", "gpm", "mig", "pcie_counter", "nvlink"};
static const char *names[CALLS] = {"*", "utilization", "memory", "clock", "reasons", "power", "fields", "gpm", "name", "uuid",
  "handle", "processes", "pcie", "mig", "energy", "nvlink", "power_instant"};

typedef struct { long tick; int gpu, kind, key; double value; } event;
typedef struct { int gpu; unsigned pid; double mib; } process;
typedef struct { int gpu; int mig; } handle;

static event events[EVENTS];
static int n_events, next_event, gpus, init_code;
static double values[GPUS][KEYS];
static int fails[GPUS][CALLS];
static int sleeps[GPUS][CALLS];
static process processes[64];
static int n_processes;
static long tick;
static handle boards[GPUS], instances[GPUS][8];
static uint64_t calls;

EXPORT uint64_t fake_calls(void) { return calls; }

static int find(const char **table, int count, const char *word) {
  for (int i = 0; i < count; i++) if (table[i] && !strcmp(table[i], word)) return i;
  fprintf(stderr, "fake nvml: unknown word %s\n", word);
  exit(3);
}

static void apply(const event *e) {
  if (e->kind == 0) values[e->gpu][e->key] = e->value;
  if (e->kind == 1) fails[e->gpu][e->key] = (int)e->value;
  if (e->kind == 2) fails[e->gpu][e->key] = 0;
  if (e->kind == 3) sleeps[e->gpu][e->key] = (int)e->value;
}

EXPORT void fake_tick(long now) {
  tick = now;
  while (next_event < n_events && events[next_event].tick <= now) apply(&events[next_event++]);
}

EXPORT void fake_set(int gpu, const char *key, double value) { values[gpu][find(keys, KEYS, key)] = value; }

EXPORT void fake_slow(int gpu, const char *call, int ms) { sleeps[gpu][find(names, CALLS, call)] = ms; }

static void add(long at, int gpu, int kind, int key, double value) {
  if (n_events == EVENTS) { fprintf(stderr, "fake nvml: too many events\n"); exit(3); }
  events[n_events++] = (event){at, gpu, kind, key, value};
}

static int by_tick(const void *a, const void *b) {
  const event *x = a, *y = b;
  return x->tick < y->tick ? -1 : x->tick > y->tick;
}

EXPORT void fake_load(const char *path) {
  char line[256], key[64];
  int gpu, code;
  long at;
  double value;
  unsigned pid;
  n_events = next_event = gpus = init_code = n_processes = 0;
  tick = 0;
  calls = 0;
  memset(fails, 0, sizeof fails);
  memset(sleeps, 0, sizeof sleeps);
  for (int i = 0; i < GPUS; i++) {
    for (int k = 0; k < KEYS; k++) values[i][k] = 0;
    values[i][TOTAL] = 81920; values[i][USED] = 1024; values[i][CLOCKV] = 1980; values[i][POWERV] = 100000;
    values[i][LIMIT] = 700000; values[i][GPMV] = 1; values[i][PCOUNT] = -1; values[i][NVLINK] = -1;
    boards[i] = (handle){i, -1};
    for (int m = 0; m < 8; m++) instances[i][m] = (handle){i, m};
  }
  FILE *file = fopen(path, "r");
  if (!file) { gpus = 0; init_code = 9; return; }
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#' || line[0] == '\n') continue;
    if (sscanf(line, "gpus %d", &gpus) == 1) continue;
    if (sscanf(line, "init %d", &init_code) == 1) continue;
    if (sscanf(line, "set %d %63s %lf", &gpu, key, &value) == 3) { values[gpu][find(keys, KEYS, key)] = value; continue; }
    if (sscanf(line, "at %ld %d %63s %lf", &at, &gpu, key, &value) == 4) { add(at, gpu, 0, find(keys, KEYS, key), value); continue; }
    if (sscanf(line, "fail %ld %d %63s %d", &at, &gpu, key, &code) == 4) { add(at, gpu, 1, find(names, CALLS, key), code); continue; }
    if (sscanf(line, "heal %ld %d %63s", &at, &gpu, key) == 3) { add(at, gpu, 2, find(names, CALLS, key), 0); continue; }
    if (sscanf(line, "slow %ld %d %63s %d", &at, &gpu, key, &code) == 4) { add(at, gpu, 3, find(names, CALLS, key), code); continue; }
    if (sscanf(line, "process %d %u %lf", &gpu, &pid, &value) == 3) { processes[n_processes++] = (process){gpu, pid, value}; continue; }
    fprintf(stderr, "fake nvml: cannot read %s", line);
    exit(3);
  }
  fclose(file);
  qsort(events, n_events, sizeof *events, by_tick);
  fake_tick(0);
}

/* What a call answers: the call's own failure, or that of the whole GPU. */
static int answer(const handle *h, int which) {
  calls++;
  if (sleeps[h->gpu][which]) {
    struct timespec pause = {sleeps[h->gpu][which] / 1000, (sleeps[h->gpu][which] % 1000) * 1000000L};
    sleeps[h->gpu][which] = 0;
    nanosleep(&pause, 0);
  }
  return fails[h->gpu][ALL] ? fails[h->gpu][ALL] : fails[h->gpu][which];
}

#define ASK(call) do { int code = answer(h, call); if (code) return code; } while (0)
#define WHOLE do { if (h->mig >= 0) return 3; } while (0)

EXPORT int nvmlInit_v2(void) {
  const char *path = getenv("TRIMTAB_FAKE_NVML");
  fake_load(path ? path : "/nonexistent");
  return init_code;
}
EXPORT int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "999.1"); return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus; return 0; }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle **out) {
  handle *h = &boards[index];
  ASK(C_handle);
  *out = h;
  return 0;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, handle **out) {
  int gpu, mig;
  if (sscanf(uuid, "GPU-%d", &gpu) == 1) *out = &boards[gpu];
  else if (sscanf(uuid, "MIG-%d-%d", &gpu, &mig) == 2) *out = &instances[gpu][mig];
  else return 6;
  handle *h = *out;
  ASK(C_handle);
  return 0;
}

EXPORT int nvmlDeviceGetUUID(handle *h, char *out, unsigned size) {
  ASK(C_uuid);
  if (h->mig < 0) snprintf(out, size, "GPU-%d", h->gpu); else snprintf(out, size, "MIG-%d-%d", h->gpu, h->mig);
  return 0;
}

EXPORT int nvmlDeviceGetName(handle *h, char *out, unsigned size) {
  ASK(C_name);
  snprintf(out, size, h->mig < 0 ? "NVIDIA H100 80GB HBM3" : "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
  return 0;
}

EXPORT int nvmlDeviceGetMigMode(handle *h, unsigned *now, unsigned *pending) {
  ASK(C_mig);
  *now = *pending = values[h->gpu][MIGV] > 0;
  return 0;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(handle *h, unsigned *count) { ASK(C_mig); *count = 7; return 0; }
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(handle *h, unsigned index, handle **out) {
  ASK(C_mig);
  if (index >= values[h->gpu][MIGV]) return 6;
  *out = &instances[h->gpu][index];
  return 0;
}
EXPORT int nvmlDeviceGetGpuInstanceId(handle *h, unsigned *id) { if (h->mig < 0) return 3; *id = h->mig + 7; return 0; }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(handle *h, unsigned *mw) { WHOLE; ASK(C_power); *mw = values[h->gpu][LIMIT]; return 0; }
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(handle *h, unsigned *gen) { ASK(C_pcie); *gen = 5; return 0; }
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(handle *h, unsigned *width) { ASK(C_pcie); *width = 16; return 0; }

EXPORT int nvmlDeviceGetUtilizationRates(handle *h, unsigned *out) {
  WHOLE;
  if (values[h->gpu][MIGV] > 0) return 3;
  ASK(C_utilization);
  out[0] = values[h->gpu][UTIL];
  out[1] = values[h->gpu][MEMBUSY];
  return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(handle *h, uint64_t *out) {
  ASK(C_memory);
  uint64_t parts = h->mig < 0 ? 1 : 8;
  out[0] = (uint64_t)values[h->gpu][TOTAL] / parts * 1048576;
  out[2] = (uint64_t)values[h->gpu][USED] / parts * 1048576;
  out[1] = out[0] - out[2];
  return 0;
}

EXPORT int nvmlDeviceGetClockInfo(handle *h, unsigned kind, unsigned *out) { WHOLE; ASK(C_clock); *out = values[h->gpu][CLOCKV]; return 0; }
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(handle *h, uint64_t *out) { WHOLE; ASK(C_reasons); *out = values[h->gpu][REASONSV]; return 0; }
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(handle *h, uint64_t *out) { return nvmlDeviceGetCurrentClocksThrottleReasons(h, out); }
EXPORT int nvmlDeviceGetPowerUsage(handle *h, unsigned *out) { WHOLE; ASK(C_power); *out = values[h->gpu][POWERV]; return 0; }

EXPORT int nvmlDeviceGetPcieThroughput(handle *h, unsigned way, unsigned *out) {
  WHOLE;
  ASK(C_pcie);
  *out = values[h->gpu][way ? PRX : PTX] * 1024;
  return 0;
}

typedef struct { unsigned field, scope; int64_t stamp, latency; unsigned type, ret; uint64_t value; } field_value;

EXPORT int nvmlDeviceGetFieldValues(handle *h, int count, field_value *out) {
  WHOLE;
  ASK(C_fields);
  double *v = values[h->gpu];
  for (int i = 0; i < count; i++) {
    field_value *f = &out[i];
    f->ret = 0;
    f->type = 3;
    switch (f->field) {
      case 83: f->value = v[ENERGY]; f->ret = answer(h, C_energy); break;
      case 186: f->value = v[POWERV]; f->type = 1; f->ret = answer(h, C_power_instant); break;
      case 197: case 198: if (v[PCOUNT] < 0) f->ret = 3; else f->value = v[PCOUNT]; break;
      case 138: case 139: if (v[NVLINK] < 0) f->ret = 3; else f->value = v[NVLINK]; break;
      default: f->ret = 3;
    }
  }
  return 0;
}

EXPORT int nvmlGpmQueryDeviceSupport(handle *h, unsigned *out) { ASK(C_gpm); out[1] = values[h->gpu][GPMV] > 0; return 0; }
EXPORT int nvmlGpmSampleAlloc(handle ***out) { *out = calloc(1, sizeof **out); return 0; }
EXPORT int nvmlGpmSampleFree(void *sample) { free(sample); return 0; }
EXPORT int nvmlGpmSampleGet(handle *h, handle **sample) { ASK(C_gpm); *sample = h; return 0; }
EXPORT int nvmlGpmMigSampleGet(handle *h, unsigned gpu_instance, handle **sample) {
  ASK(C_gpm);
  *sample = &instances[h->gpu][gpu_instance - 7];
  return 0;
}

typedef struct { unsigned id, ret; double value; void *words[3]; } gpm_metric;
typedef struct { unsigned version, count; handle **before, **after; gpm_metric metrics[]; } gpm_get;

EXPORT int nvmlGpmMetricsGet(gpm_get *get) {
  calls++;
  if (get->version != 1 || !get->before || !get->after || *get->before != *get->after) return 2;
  double *v = values[(*get->after)->gpu];
  for (unsigned i = 0; i < get->count; i++) {
    gpm_metric *m = &get->metrics[i];
    m->ret = 0;
    switch (m->id) {
      case 2: m->value = v[SM]; break;
      case 3: m->value = v[OCC]; break;
      case 5: m->value = v[TENSOR]; break;
      case 10: m->value = v[DRAM]; break;
      case 20: m->value = v[PTX]; break;
      case 21: m->value = v[PRX]; break;
      default: m->ret = 3;
    }
  }
  return 0;
}

typedef struct { unsigned pid; uint64_t used; unsigned gi, ci; } process_info;

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(handle *h, unsigned *count, process_info *out) {
  ASK(C_processes);
  unsigned room = *count, found = 0;
  for (int i = 0; i < n_processes; i++) {
    if (processes[i].gpu != h->gpu) continue;
    if (found == room) return 7;
    out[found++] = (process_info){processes[i].pid, processes[i].mib < 0 ? UINT64_MAX : (uint64_t)(processes[i].mib * 1048576), UINT32_MAX, UINT32_MAX};
  }
  *count = found;
  return 0;
}
