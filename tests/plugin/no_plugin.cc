// A loadable library that is not a device plugin.
extern "C" int something_else() { return 0; }
