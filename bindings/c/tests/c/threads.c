// Two threads with one engine, one volume and one graph: calls of any thread, several at once.
#include <pthread.h>

#include "storage.h"

enum { ROUNDS = 8, N = 4096 };

typedef struct {
  wb_engine_t* engine;
  wb_cache_t* cache;
  wb_graph_t* graph;
  uint64_t page;
} work;

static void* worker(void* argument) {
  const work* mine = argument;
  CHECK(wb_last_error_code() == WB_OK);
  wb_array_t* array = NULL;
  OK(wb_array_at(mine->cache, mine->page, N, WB_U32, 0, &array));
  uint32_t *values = malloc(N * 4), *back = malloc(N * 4);
  for (uint32_t round = 0; round < ROUNDS; ++round) {
    for (uint32_t i = 0; i < N; ++i) values[i] = i * round + (uint32_t)mine->page;
    OK(wb_array_write(array, 0, N, values));
    OK(wb_array_read(array, 0, N, back));
    CHECK(memcmp(values, back, N * 4) == 0);
    wb_values_t* depth = NULL;
    OK(wb_bfs(mine->graph, round, NULL, &depth, NULL));
    uint32_t own = WB_UNREACHED;
    OK(wb_values_read(depth, round, 1, WB_U32, &own));
    CHECK(own == 0);
    wb_values_release(depth);
    // Errors are those of the thread.
    char part[32];
    snprintf(part, sizeof(part), "elements %u to", (unsigned)(N + mine->page));
    FAILS(WB_ERR_ARGUMENT, part, wb_array_read(array, N + mine->page, 1, back));
    wb_engine_t* same = wb_engine_retain(mine->engine);
    CHECK(same == mine->engine);
    wb_engine_release(same);
  }
  free(values);
  free(back);
  wb_array_release(array);
  return NULL;
}

int main(void) {
  wb_engine_t* engine = cpu_engine(2);
  wb_volume_t* volume = open_volume(engine, "soft:mem:4M");
  wb_cache_t* cache = open_cache(volume, 64 << 10);
  wb_graph_t* graph = NULL;
  OK(wb_graph_load(engine, "kron:7", NULL, WB_EDGES_IN_DEVICE, NULL, &graph));
  pthread_t threads[2];
  work works[2] = {{engine, cache, graph, 100}, {engine, cache, graph, 200}};
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, worker, &works[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  OK(wb_cache_flush(cache));
  wb_graph_release(graph);
  wb_cache_release(cache);
  wb_volume_release(volume);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
