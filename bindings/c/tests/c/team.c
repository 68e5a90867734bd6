// Teams and their collective calls.
#include "pes.h"

static void numbers(pe* p, wb_team_t* all) {
  uint32_t me = 9, count = 9, found = 0;
  OK(wb_team_my_pe(all, &me));
  OK(wb_team_n_pes(all, &count));
  CHECK(me == p->me && count == p->pes);
  wb_team_view view;
  OK(wb_team_get_view(all, &view));
  CHECK(view.world.pe == me && view.team.size == count);
  // 0 2
  wb_team_t* even = (wb_team_t*)&view;
  OK(wb_team_split_strided(all, 0, 2, 2, &even));
  CHECK((even != NULL) == (p->me % 2 == 0));
  if (even != NULL) {
    OK(wb_team_my_pe(even, &me));
    CHECK(me == p->me / 2);
    OK(wb_team_translate(even, 1, all, &found));
    CHECK(found == 2);
    OK(wb_team_translate(even, 1, NULL, &found));
    CHECK(found == 2);
    OK(wb_team_translate(all, 1, even, &found));
    CHECK(found == WB_NO_MEMBER);
    OK(wb_team_translate(even, 5, NULL, &found));
    CHECK(found == WB_NO_MEMBER);
    OK(wb_team_barrier(even, NULL));
    CHECK(wb_team_retain(even) == even);
    wb_team_release(even);
    wb_team_release(even);
  }
  // 0 1 2
  // 3
  wb_team_t *row = NULL, *column = NULL, *node = NULL;
  OK(wb_team_split_2d(all, 3, &row, &column));
  OK(wb_team_n_pes(row, &count));
  CHECK(count == (p->me < 3 ? 3 : 1));
  OK(wb_team_n_pes(column, &count));
  CHECK(count == (p->me % 3 == 0 ? 2 : 1));
  OK(wb_team_sync(row, NULL));
  OK(wb_team_sync(column, NULL));
  wb_team_release(row);
  wb_team_release(column);
  FAILS(WB_ERR_ARGUMENT, "a team of 0 PEs", wb_team_split_2d(all, 0, &row, &column));
  FAILS(WB_ERR_WORLD, "split_2d failed", wb_team_split_2d(all, 2 + (p->me == 3), &row, &column));
  FAILS(WB_ERR_ARGUMENT, "`column` is null", wb_team_split_2d(all, 2, &row, NULL));
  OK(wb_team_node(p->world, &node));
  OK(wb_team_n_pes(node, &count));
  CHECK(count == p->pes);
  wb_team_release(node);
  FAILS(WB_ERR_ARGUMENT, "does not fit into a team of 4", wb_team_split_strided(all, 2, 2, 2, &node));
  FAILS(WB_ERR_WORLD, "split_strided failed", wb_team_split_strided(all, 0, 1, 1 + p->me, &node));
  FAILS(WB_ERR_ARGUMENT, "`made` is null", wb_team_split_strided(all, 0, 1, 1, NULL));
  FAILS(WB_ERR_HANDLE, "the team is of another type", wb_team_barrier((wb_team_t*)p->world, NULL));
}

static void write_u32(wb_symmetric_t* memory, size_t index, uint32_t value) { OK(wb_symmetric_write(memory, 4 * index, &value, 4)); }

static uint32_t read_u32(wb_symmetric_t* memory, size_t index) {
  uint32_t value = 0;
  OK(wb_symmetric_read(memory, 4 * index, &value, 4));
  return value;
}

static void collectives(pe* p, wb_team_t* all, wb_stream_t* stream) {
  const uint32_t me = p->me, pes = p->pes;
  wb_symmetric_t *source = NULL, *dest = NULL;
  OK(wb_symmetric_allocate(p->world, 64, 0, &source));
  OK(wb_symmetric_allocate(p->world, 64, 0, &dest));
  for (uint32_t i = 0; i < 8; ++i) write_u32(source, i, 10 * me + i);
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_team_broadcast(all, dest, 4, source, 8, 4, 2, stream));
  OK(wb_stream_synchronize(stream, 100));
  CHECK(read_u32(dest, 1) == 22 && read_u32(dest, 0) == 0);
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_team_fcollect(all, dest, 0, source, 4, 4, stream));
  OK(wb_stream_synchronize(stream, 100));
  for (uint32_t pe = 0; pe < pes; ++pe) CHECK(read_u32(dest, pe) == 10 * pe + 1);
  OK(wb_world_barrier_all(p->world, NULL));
  OK(wb_team_alltoall(all, dest, 0, source, 0, 4, stream));
  OK(wb_stream_synchronize(stream, 100));
  for (uint32_t pe = 0; pe < pes; ++pe) CHECK(read_u32(dest, pe) == 10 * pe + me);
  OK(wb_world_barrier_all(p->world, NULL));
  // Blocking calls, with all kinds of elements.
  OK(wb_team_reduce(all, WB_REDUCE_SUM, WB_U32, dest, 0, source, 0, 2, NULL));
  CHECK(read_u32(dest, 0) == 60 && read_u32(dest, 1) == 64);
  OK(wb_team_reduce(all, WB_REDUCE_MAX, WB_I32, dest, 0, source, 0, 1, NULL));
  CHECK(read_u32(dest, 0) == 30);
  OK(wb_team_reduce(all, WB_REDUCE_MIN, WB_I32, dest, 0, source, 4, 1, stream));
  OK(wb_stream_synchronize(stream, 100));
  CHECK(read_u32(dest, 0) == 1);
  write_u32(source, 0, 1u << me);
  OK(wb_team_reduce(all, WB_REDUCE_OR, WB_U8, dest, 0, source, 0, 4, NULL));
  CHECK(read_u32(dest, 0) == 15);
  OK(wb_team_reduce(all, WB_REDUCE_XOR, WB_U16, dest, 0, source, 0, 2, NULL));
  CHECK(read_u32(dest, 0) == 15);
  OK(wb_team_reduce(all, WB_REDUCE_AND, WB_U64, dest, 0, source, 0, 1, NULL));
  CHECK(read_u32(dest, 0) == 0);
  const double two = 2;
  double product = 0;
  OK(wb_symmetric_write(source, 8, &two, 8));
  OK(wb_team_reduce(all, WB_REDUCE_PROD, WB_F64, dest, 8, source, 8, 1, NULL));
  OK(wb_symmetric_read(dest, 8, &product, 8));
  CHECK(product == 16);
  OK(wb_team_barrier(all, NULL));

  FAILS(WB_ERR_ARGUMENT, "for integers", wb_team_reduce(all, WB_REDUCE_AND, WB_F32, dest, 0, source, 0, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "`op` is 7", wb_team_reduce(all, 7, WB_U32, dest, 0, source, 0, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "`dtype` is 11", wb_team_reduce(all, WB_REDUCE_SUM, WB_RECORD, dest, 0, source, 0, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "not elements of 4 bytes", wb_team_reduce(all, WB_REDUCE_SUM, WB_U32, dest, 2, source, 0, 1, NULL));
  FAILS(WB_ERR_ARGUMENT, "overlap", wb_team_alltoall(all, source, 4, source, 0, 4, NULL));
  FAILS(WB_ERR_ARGUMENT, "PE 4", wb_team_broadcast(all, dest, 0, source, 0, 4, 4, NULL));
  FAILS(WB_ERR_ARGUMENT, "outside a symmetric array of 64", wb_team_fcollect(all, dest, 0, source, 0, 32, NULL));
  FAILS(WB_ERR_ARGUMENT, "more than any heap has", wb_team_fcollect(all, dest, 0, source, 0, SIZE_MAX, NULL));
  FAILS(WB_ERR_HANDLE, "the symmetric memory is null", wb_team_fcollect(all, dest, 0, NULL, 0, 4, NULL));
  wb_symmetric_release(source);
  wb_symmetric_release(dest);
}

static void steps(pe* p) {
  wb_team_t* all = NULL;
  wb_stream_t* stream = NULL;
  OK(wb_team_world(p->world, &all));
  OK(wb_stream_create(p->engine, &stream));
  numbers(p, all);
  collectives(p, all, stream);
  wb_stream_release(stream);
  // The team keeps the world that it needs.
  wb_world_release(p->world);
  OK(wb_team_barrier(all, NULL));
  wb_team_release(all);
}

int main(void) {
  // Teams take up to a sixteenth of the heap.
  const wb_world_options options = {.size = sizeof(options), .heap_bytes = 32 << 20, .timeout = 100};
  on_all(4, &options, steps);
  puts("ok");
  return 0;
}
