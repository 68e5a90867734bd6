// Engines, their options, and the rules of handles and errors.
#include "check.h"

static void options_of_all_sizes(void) {
  wb_engine_t* engine = NULL;
  wb_engine_options options = {.size = sizeof(options)};
  options.kind = WB_ENGINE_CPU;
  options.threads = 1;
  // An older program knows fewer fields.
  options.size = offsetof(wb_engine_options, without_shipped);
  OK(wb_engine_open(&options, &engine));
  wb_engine_release(engine);
  options.size = 4;
  FAILS(WB_ERR_ARGUMENT, "sizeof(wb_engine_options)", wb_engine_open(&options, &engine));
  // A newer program has more fields, which are zero unless they are used.
  struct {
    wb_engine_options options;
    uint64_t newer;
  } newer = {.options = {.size = sizeof(newer)}, .newer = 0};
  newer.options.kind = WB_ENGINE_CPU;
  newer.options.threads = 1;
  OK(wb_engine_open(&newer.options, &engine));
  wb_engine_release(engine);
  newer.newer = 1;
  engine = NULL;
  FAILS(WB_ERR_ARGUMENT, "Use a newer library", wb_engine_open(&newer.options, &engine));
  CHECK(engine == NULL);
  options.size = sizeof(options);
  options.kind = 9;
  FAILS(WB_ERR_ARGUMENT, "`kind` is 9", wb_engine_open(&options, &engine));
  options.kind = WB_ENGINE_GPU;
  options.gpu = 4242;
  FAILS(WB_ERR_UNSUPPORTED, "", wb_engine_open(&options, &engine));
  const wb_image* images[] = {NULL};
  options.kind = WB_ENGINE_CPU;
  options.images = images;
  options.image_count = 1;
  FAILS(WB_ERR_ARGUMENT, "`images` is null", wb_engine_open(&options, &engine));
  wb_image image = {sizeof(image), "mine", NULL, NULL, NULL, 0};
  images[0] = &image;
  FAILS(WB_ERR_UNSUPPORTED, "`mine` has no kernels for cpu engines", wb_engine_open(&options, &engine));
  image.name = "\xff";
  FAILS(WB_ERR_ARGUMENT, "not UTF-8", wb_engine_open(&options, &engine));
  options.images = NULL;
  FAILS(WB_ERR_ARGUMENT, "`images` is null, with a count of 1", wb_engine_open(&options, &engine));
}

static void handles(wb_engine_t* engine) {
  uint32_t kind;
  FAILS(WB_ERR_HANDLE, "the engine is null", wb_engine_kind(NULL, &kind));
  FAILS(WB_ERR_ARGUMENT, "`kind` is null", wb_engine_kind(engine, NULL));
  uint64_t nothing[2] = {0, 0};
  FAILS(WB_ERR_HANDLE, "no handle", wb_engine_kind((wb_engine_t*)nothing, &kind));
  FAILS(WB_ERR_HANDLE, "no handle", wb_engine_kind((wb_engine_t*)((char*)nothing + 1), &kind));
  CHECK(wb_engine_retain((wb_engine_t*)nothing) == NULL);
  // Released once for each reference.
  CHECK(wb_engine_retain(engine) == engine);
  wb_engine_release(engine);
  OK(wb_engine_kind(engine, &kind));
  CHECK(kind == WB_ENGINE_CPU);
  wb_engine_release(NULL);
}

static void facts(wb_engine_t* engine) {
  char* json = NULL;
  OK(wb_engine_info(engine, &json));
  CHECK(strstr(json, "\"kind\":\"cpu\"") != NULL && strstr(json, "wb_iota") != NULL);
  wb_string_free(json);
  wb_string_free(NULL);
  wb_grid grid;
  OK(wb_engine_grid(engine, 64, 2, &grid));
  CHECK(grid.threads >= 1 && grid.threads <= 64 && grid.blocks >= 1);
  OK(wb_engine_set_deadline(engine, 0.5));
  OK(wb_engine_set_deadline(engine, 0));
  FAILS(WB_ERR_ARGUMENT, "it must be 0 for the default", wb_engine_set_deadline(engine, -1));
  OK(wb_engine_cancel(engine));
  OK(wb_engine_resume(engine));
  CHECK(strcmp(wb_code_name(WB_ERR_HANDLE), "WB_ERR_HANDLE") == 0 && strcmp(wb_code_name(7), "unknown") == 0);
}

int main(void) {
  CHECK(wb_last_error_code() == WB_OK && wb_last_error()[0] == '\0' && wb_last_error_remedy(0) == NULL);
  CHECK(wb_last_error_operations(NULL, 0) == 0);
  options_of_all_sizes();
  wb_engine_t* engine = NULL;
  wb_engine_options options = {.size = sizeof(options)};
  options.kind = WB_ENGINE_CPU;
  options.threads = 2;
  OK(wb_engine_open(&options, &engine));
  handles(engine);
  facts(engine);
  wb_engine_release(engine);
  puts("ok");
  return 0;
}
