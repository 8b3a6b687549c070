#include "record/bail.h"

static const char *const names[] = {
#define DYCL_BAIL_ROW(name, text) #name,
#include "record/bail.def"
#undef DYCL_BAIL_ROW
};
static const char *const texts[] = {
#define DYCL_BAIL_ROW(name, text) text,
#include "record/bail.def"
#undef DYCL_BAIL_ROW
};

const char *dycl_bail_name(dycl_bail why) { return names[why]; }
const char *dycl_bail_text(dycl_bail why) { return texts[why]; }
