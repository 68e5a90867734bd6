// Worlds of several processes, which find each other by an exchange of the program, by an id, and by the environment.
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

// No process of this test lives longer, whatever happens.
#define LIMIT 200
#define MOST 3

// Sockets between rank 0 and the others: links[rank] of rank 0, and `up` of the others.
typedef struct {
  uint32_t rank, ranks;
  int links[MOST], up;
  // The exchange fails at this call; 0 for never.
  int fails_at, calls, released;
} mesh;

static int all_of(int socket, void* bytes, size_t count, int is_write) {
  for (size_t at = 0; at < count;) {
    const ssize_t n = is_write ? send(socket, (char*)bytes + at, count - at, MSG_NOSIGNAL) : read(socket, (char*)bytes + at, count - at);
    if (n <= 0) return 5;
    at += (size_t)n;
  }
  return 0;
}

// Rank 0 collects the bytes of all and sends them back.
static int allgather(void* argument, const void* bytes, size_t count, void* all) {
  mesh* m = argument;
  if (++m->calls == m->fails_at) return 7;
  int code = 0;
  if (m->rank != 0) {
    memcpy((char*)all + m->rank * count, bytes, count);
    code |= all_of(m->up, (char*)all + m->rank * count, count, 1);
    return code ? code : all_of(m->up, all, m->ranks * count, 0);
  }
  memcpy(all, bytes, count);
  for (uint32_t r = 1; r < m->ranks && !code; ++r) code = all_of(m->links[r], (char*)all + r * count, count, 0);
  for (uint32_t r = 1; r < m->ranks && !code; ++r) code = all_of(m->links[r], all, m->ranks * count, 1);
  return code;
}

static void release(void* argument) { ++((mesh*)argument)->released; }

static wb_engine_t* cpu_engine(void) {
  wb_engine_t* engine = NULL;
  const wb_engine_options options = {.size = sizeof(options), .kind = WB_ENGINE_CPU, .threads = 1};
  OK(wb_engine_open(&options, &engine));
  OK(wb_engine_set_deadline(engine, 100));
  return engine;
}

// Runs `work` in a process for each rank, and waits for all. Every process ends with code 0.
static void on_all(uint32_t ranks, void (*work)(mesh*)) {
  int ends[MOST][2];
  pid_t children[MOST];
  for (uint32_t r = 1; r < ranks; ++r) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[r]) == 0);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    fflush(NULL);
    children[rank] = fork();
    CHECK(children[rank] >= 0);
    if (children[rank] != 0) continue;
    alarm(LIMIT);
    mesh m = {.rank = rank, .ranks = ranks, .up = -1};
    for (uint32_t r = 1; r < ranks; ++r) {
      m.links[r] = ends[r][0];
      if (r == rank) m.up = ends[r][1];
      if (r != rank) close(ends[r][1]);
      if (rank != 0) close(ends[r][0]);
    }
    work(&m);
    exit(0);
  }
  for (uint32_t r = 1; r < ranks; ++r) {
    close(ends[r][0]);
    close(ends[r][1]);
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    if (status != 0) fprintf(stderr, "rank %u ended with status %#x\n", rank, (unsigned)status);
    CHECK(status == 0);
  }
}

static wb_world_options options_of(mesh* m) {
  wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 100};
  options.rank = m->rank;
  options.ranks = m->ranks;
  options.allgather = allgather;
  options.allgather_argument = m;
  options.allgather_release = release;
  return options;
}

// Passes a number to the next rank through the heaps.
static void pass_on(wb_world_t* world, mesh* m) {
  wb_symmetric_t* inbox = NULL;
  OK(wb_symmetric_allocate(world, 8, 0, &inbox));
  uint64_t value = 100 + m->rank, found = 0;
  OK(wb_symmetric_put(inbox, 0, &value, 8, (m->rank + 1) % m->ranks));
  OK(wb_world_barrier_all(world, NULL));
  OK(wb_symmetric_read(inbox, 0, &found, 8));
  CHECK(found == 100 + (m->rank + m->ranks - 1) % m->ranks);
  wb_symmetric_release(inbox);
}

static void by_exchange(mesh* m) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  wb_world_options options = options_of(m);
  const uint32_t transports[] = {WB_TRANSPORT_PEER, WB_TRANSPORT_SOFT};
  for (int i = 0; i < 2; ++i) {
    // Software NICs need a secret, which the exchange has passed on.
    options.transport = transports[i];
    OK(wb_world_create(engine, &options, &world));
    char* info = NULL;
    OK(wb_world_info(world, &info));
    CHECK(strstr(info, "\"via\":\"the program's allgather\"") != NULL);
    wb_string_free(info);
    pass_on(world, m);
    CHECK(m->released == i);
    wb_world_release(world);
    CHECK(m->released == i + 1);
  }
  wb_engine_release(engine);
}

static void exchange_that_fails(mesh* m) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  const wb_world_options options = options_of(m);
  if (m->rank == 1) {
    m->fails_at = 3;
    FAILS(WB_ERR_IO, "the program's allgather failed: it returned 7 to rank 1 of 3", wb_world_create(engine, &options, &world));
  } else {
    // Rank 1 has ended, and with it its sockets.
    FAILS(WB_ERR_IO, "the program's allgather failed: it returned 5", wb_world_create(engine, &options, &world));
  }
  CHECK(world == NULL && m->released == 0);
  wb_engine_release(engine);
}

static void rank_that_fails(mesh* m) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  wb_world_options options = options_of(m);
  if (m->rank == 1) {
    options.rank = 5;
    FAILS(WB_ERR_ARGUMENT, "rank 5 of a world of 2", wb_world_create(engine, &options, &world));
  } else {
    FAILS(WB_ERR_IO, "it returned 5 to rank 0 of 2", wb_world_create(engine, &options, &world));
  }
  wb_engine_release(engine);
}

static void ranks_in_another_order(mesh* m) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  wb_world_options options = options_of(m);
  options.rank = 1 - m->rank;
  FAILS(WB_ERR_WORLD, "the bytes of rank 1 of 2 at place 0 of 2", wb_world_create(engine, &options, &world));
  wb_engine_release(engine);
}

static void different_heaps(mesh* m) {
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  wb_world_options options = options_of(m);
  options.heap_bytes <<= m->rank;
  FAILS(WB_ERR_WORLD, "must be the same on all ranks", wb_world_create(engine, &options, &world));
  wb_engine_release(engine);
}

// Rank 0 creates an id, and the others get it through the sockets.
static wb_world_options by_id(mesh* m, wb_unique_id* id) {
  if (m->rank == 0) OK(wb_unique_id_create("127.0.0.1", id));
  if (m->rank != 0) CHECK(all_of(m->up, id, sizeof(*id), 0) == 0);
  for (uint32_t r = 1; m->rank == 0 && r < m->ranks; ++r) CHECK(all_of(m->links[r], id, sizeof(*id), 1) == 0);
  wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 100};
  options.rank = m->rank;
  options.ranks = m->ranks;
  options.id = id;
  return options;
}

static void id_of_rank_0(mesh* m) {
  wb_unique_id id;
  wb_world_options options = by_id(m, &id);
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  OK(wb_world_create(engine, &options, &world));
  pass_on(world, m);
  wb_world_release(world);
  world = NULL;
  if (m->rank == 0) FAILS(WB_ERR_ARGUMENT, "an id serves one world", wb_world_create(engine, &options, &world));
  wb_engine_release(engine);
}

static void ids_that_are_wrong(mesh* m) {
  wb_unique_id id;
  wb_world_options options = by_id(m, &id);
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  options.timeout = 0.5;
  if (m->rank == 0) {
    FAILS(WB_ERR_TIMEOUT, "for rank 1", wb_world_create(engine, &options, &world));
    FAILS(WB_ERR_ARGUMENT, "`no such host` is not an interface", wb_unique_id_create("no such host", &id));
    FAILS(WB_ERR_ARGUMENT, "`id` is null", wb_unique_id_create(NULL, NULL));
    OK(wb_unique_id_create(NULL, &id));
    options.allgather = allgather;
    FAILS(WB_ERR_ARGUMENT, "both `id` and `allgather`", wb_world_create(engine, &options, &world));
  } else {
    options.rank = 0;
    FAILS(WB_ERR_ARGUMENT, "its own process has to create the id", wb_world_create(engine, &options, &world));
    options.rank = 2;
    FAILS(WB_ERR_ARGUMENT, "rank 2 of a world of 2", wb_world_create(engine, &options, &world));
    options.rank = 1;
    id.bytes[20] ^= 1;
    FAILS(WB_ERR_ARGUMENT, "the bytes are damaged", wb_world_create(engine, &options, &world));
    id.bytes[20] ^= 1;
    // An id of this process, which no rank 0 serves.
    OK(wb_unique_id_create("127.0.0.1", &id));
    FAILS(WB_ERR_TIMEOUT, "rank 1 could not reach rank 0 at 127.0.0.1", wb_world_create(engine, &options, &world));
  }
  CHECK(world == NULL);
  wb_engine_release(engine);
}

// A process that ends without leaving is lost: calls that wait for it return, and so do later ones.
static void lost_rank(mesh* m) {
  wb_unique_id id;
  const wb_world_options options = by_id(m, &id);
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  OK(wb_world_create(engine, &options, &world));
  OK(wb_world_barrier_host(world));
  if (m->rank == 1) _exit(0);
  FAILS(WB_ERR_WORLD, "rank 1 is gone", wb_world_barrier_all(world, NULL));
  FAILS(WB_ERR_WORLD, "rank 1 is gone", wb_world_barrier_host(world));
  uint32_t rank = 0;
  char* reason = NULL;
  OK(wb_world_lost(world, &rank, &reason));
  CHECK(rank == 1 && strstr(reason, "connection") != NULL);
  wb_string_free(reason);
  wb_symmetric_t* memory = NULL;
  FAILS(WB_ERR_WORLD, "rank 1 is gone", wb_symmetric_allocate(world, 8, 0, &memory));
  wb_world_release(world);
  wb_engine_release(engine);
}

// A listening socket that rank 0 inherits.
static int listener = -1;
static char store[32];

// Sets the variables of a launcher.
static void launch(uint32_t rank, uint32_t ranks, const char* secret) {
  char text[3][16];
  snprintf(text[0], sizeof(text[0]), "%u", rank);
  snprintf(text[1], sizeof(text[1]), "%u", ranks);
  snprintf(text[2], sizeof(text[2]), "%d", listener);
  setenv("WARPBELL_RANK", text[0], 1);
  setenv("WARPBELL_SIZE", text[1], 1);
  setenv("WARPBELL_STORE_FD", text[2], 1);
  setenv("WARPBELL_STORE", store, 1);
  if (secret != NULL) setenv("WARPBELL_SECRET", secret, 1);
}

static void by_environment(mesh* m) {
  launch(m->rank, m->ranks, NULL);
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  const wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 100};
  FAILS(WB_ERR_ARGUMENT, "need a secret", wb_world_create(engine, &options, &world));
  launch(m->rank, m->ranks, "the processes of this test know it");
  OK(wb_world_create(engine, &options, &world));
  pass_on(world, m);
  wb_world_release(world);
  wb_engine_release(engine);
}

// Process 1 tries to be rank 1 with another secret, and process 2 is rank 1 then.
static int refused[2];

static void by_another_secret(mesh* m) {
  launch(m->rank != 0, 2, m->rank == 1 ? "a secret that is another one" : "the processes of this test know it");
  wb_engine_t* engine = cpu_engine();
  wb_world_t* world = NULL;
  const wb_world_options options = {.size = sizeof(options), .heap_bytes = 1 << 20, .timeout = 100};
  char done = 0;
  if (m->rank == 1) {
    FAILS(WB_ERR_WORLD, "have different secrets", wb_world_create(engine, &options, &world));
    CHECK(write(refused[1], &done, 1) == 1);
  } else {
    if (m->rank == 2) CHECK(read(refused[0], &done, 1) == 1);
    OK(wb_world_create(engine, &options, &world));
    OK(wb_world_barrier_all(world, NULL));
    wb_world_release(world);
  }
  wb_engine_release(engine);
}

static void listen_here(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(address);
  listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(listener >= 0 && bind(listener, (struct sockaddr*)&address, length) == 0 && listen(listener, 16) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&address, &length) == 0);
  snprintf(store, sizeof(store), "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
}

int main(void) {
  on_all(3, by_exchange);
  on_all(3, exchange_that_fails);
  on_all(2, rank_that_fails);
  on_all(2, ranks_in_another_order);
  on_all(2, different_heaps);
  on_all(3, id_of_rank_0);
  on_all(2, ids_that_are_wrong);
  on_all(2, lost_rank);
  listen_here();
  on_all(3, by_environment);
  CHECK(pipe(refused) == 0);
  on_all(3, by_another_secret);
  puts("ok");
  return 0;
}
