/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package sharding

// ProgressAnnotation marks the bookmark that answers a watch which asks how far the server is: a
// watch of a range of hash keys from a resource version, with allowWatchBookmarks=true and
// sendInitialEvents=false. The watch has then sent everything up to the bookmark's resource
// version, which is that of the moment of the request or later. No other bookmark says how old it
// is.
const ProgressAnnotation = "sharding.k8s.io/progress"
