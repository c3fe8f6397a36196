// A library that can be loaded and is no device plugin.
extern "C" int something_else() { return 0; }
